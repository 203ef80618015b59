"""What the kernel tells of a process."""
