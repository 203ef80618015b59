"""The sources of time series, and the Prometheus servers that the sentinel starts."""
