"""The event log: written, read, recovered from, judged anew."""
