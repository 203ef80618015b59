"""Evidence from all nodes, gathered under deadlines."""
