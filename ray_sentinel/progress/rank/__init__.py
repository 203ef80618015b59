"""In the rank: its record, and the thread beside it that answers."""
