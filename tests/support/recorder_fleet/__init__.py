"""A second source of flight-recorder dumps, written apart from ``recorder_sim`` and unlike it.

Jobs are drawn from a parameter space (any mix of tensor, context, expert, pipeline and data groups)
instead of from a list, and run by a clock instead of by chance: every operation has an issue, a
start and an end time, so a dump can be taken at any moment, of a job that hangs or of one that
runs.
"""
