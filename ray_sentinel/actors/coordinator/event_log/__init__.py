"""The event log: writing, reading, recovery and replay."""
