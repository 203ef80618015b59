"""Pure: time series in, a diagnosis out."""
