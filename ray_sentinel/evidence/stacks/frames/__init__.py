"""What frames and threads mean: which wait, which help, which tell."""
