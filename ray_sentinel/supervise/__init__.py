"""Runs a training command, watches it, restarts it from a checkpoint; checks before a run."""
