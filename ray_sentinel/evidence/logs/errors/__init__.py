"""Lines that report errors and exits: the catalogue of signatures, and what it finds."""
