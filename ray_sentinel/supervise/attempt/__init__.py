"""One run of the command: its processes, their output, whether it moves."""
