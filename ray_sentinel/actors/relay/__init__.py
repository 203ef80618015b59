"""Actors of large clusters that hand on the reports of some agents together."""
