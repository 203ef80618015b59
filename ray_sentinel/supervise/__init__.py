"""Run a training command, watch it, restart it from a checkpoint; checks before a run."""
