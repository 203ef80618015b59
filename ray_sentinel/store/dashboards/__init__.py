"""Dashboards for Grafana, described here and written as JSON, one dashboard a file."""
