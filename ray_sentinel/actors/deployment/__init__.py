"""Puts the actors on every node, and removes them."""
