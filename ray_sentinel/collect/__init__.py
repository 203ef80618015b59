"""On the node: one process per collector, under deadlines."""
