"""The agent on each node: watches its ranks, collects, serves, and reports to the coordinator."""
