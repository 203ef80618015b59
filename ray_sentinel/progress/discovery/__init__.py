"""Ranks, drivers and servers found from outside, without attach()."""
