"""Who waits for whom: facts of all witnesses, one graph, its roots and the chains to them."""
