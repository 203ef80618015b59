"""One or a few lines of a log: prefixes, times, levels, tracebacks."""
