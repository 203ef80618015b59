"""The folders of incidents: written, indexed, and removed when there are too many."""
