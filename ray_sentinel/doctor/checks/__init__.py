"""The checks, one a file; each is found by being here."""
