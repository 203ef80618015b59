"""What programs on a node print about its GPUs, its transport and Ray, parsed into facts."""
