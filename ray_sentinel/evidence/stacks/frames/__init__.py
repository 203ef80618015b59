"""What frames and threads mean: which wait, which only help, which show the rank's place."""
