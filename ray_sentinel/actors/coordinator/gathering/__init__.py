"""Evidence gathered from all nodes under deadlines."""
