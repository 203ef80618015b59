"""One line, or a few, of a log: prefixes, times, levels, tracebacks."""
