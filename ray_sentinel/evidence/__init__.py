"""Pure: a tool's bytes in, facts out (py-spy, gdb, flight recorder, logs)."""
