"""TensorBoard event files: framing with checksums, scalars, and what is known of a run. Pure."""
