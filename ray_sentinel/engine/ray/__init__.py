"""Jobs of Ray: their members, methods, waits and deaths."""
