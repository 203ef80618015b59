"""Prometheus: the one of a job, others as sources, their data folders."""
