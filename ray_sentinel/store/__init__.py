"""Where time series are read from, and the Prometheus servers that we start."""
