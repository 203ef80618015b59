"""Queries to Ray's control store, and what its replies mean."""
