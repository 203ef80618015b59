"""The life of an incident, and the work on it while it is open."""
