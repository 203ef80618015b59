"""Checks before a run: each looks on every node at once, and is judged over all nodes together."""
