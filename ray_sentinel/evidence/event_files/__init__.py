"""TensorBoard event files: framing with checksums, scalars, and the state of a run. Pure."""
