"""TensorBoard event files: where they are, and following them as they grow and rotate."""
