"""TensorBoard event files: framing, checksums, scalars, and following files as they grow."""
