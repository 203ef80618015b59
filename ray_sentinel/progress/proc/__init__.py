"""What the kernel shows about a process."""
