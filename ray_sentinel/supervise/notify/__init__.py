"""Notices of what happened, sent to people."""
