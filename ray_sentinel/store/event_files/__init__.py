"""TensorBoard's event files as a source of series: found, read, joined into runs."""
