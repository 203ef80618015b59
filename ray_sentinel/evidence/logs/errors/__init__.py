"""Lines that report errors and ends: the catalogue, and what it finds."""
