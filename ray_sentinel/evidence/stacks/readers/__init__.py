"""Parsers for each tool's output, all into the same records."""
