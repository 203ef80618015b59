"""The parts of the collector of Ray: finding the cluster, and what its control store tells."""
