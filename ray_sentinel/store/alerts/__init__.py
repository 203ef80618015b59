"""Alert rules for Prometheus: what needs no engine to be known, one subject a file."""
