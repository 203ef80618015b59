"""Actors of large clusters that forward the reports of several agents together."""
