"""One rule a file; rules of one form share a file."""
