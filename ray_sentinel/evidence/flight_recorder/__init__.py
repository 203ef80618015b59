"""Flight-recorder dumps: what each rank called, how far it came, and who waits for whom."""
