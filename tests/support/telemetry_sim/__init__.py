"""A job's telemetry, generated second by second and fed through a real engine as snapshots.

Levels, lags and noise are drawn from ``ranges``; nothing here is imported by the rules, nor from
them.
"""
