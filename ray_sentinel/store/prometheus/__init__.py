"""Prometheus: the one of a job, those of others as sources, their data folders."""
