"""What programs on a node print of its GPUs, its transport and Ray, read into facts."""
