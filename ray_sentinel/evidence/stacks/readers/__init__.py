"""Each tool's output, read into the same records."""
