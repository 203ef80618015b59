"""Pure: the output of a tool (py-spy, gdb, flight recorder, logs) in, facts out."""
