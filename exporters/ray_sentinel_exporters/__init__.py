"""Exporters that ship with ray_sentinel, one a file."""
