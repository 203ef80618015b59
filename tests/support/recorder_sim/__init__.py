"""Simulated training jobs that leave flight-recorder dumps: layouts, faults, and all formats."""
