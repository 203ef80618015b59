"""On the node: debuggers and samplers as programs with deadlines."""
