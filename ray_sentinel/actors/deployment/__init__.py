"""How the actors come to be on every node, and how they go again."""
