"""HTTP served on the node's own address: bounded, for many clients, slow ones and hostile ones."""
