"""On the node: debuggers and samplers, run as programs with deadlines."""
