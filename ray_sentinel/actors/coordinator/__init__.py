"""The coordinator: one in a cluster. Runs the engine, and carries out what it asks for."""
