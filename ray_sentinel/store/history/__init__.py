"""The embedded history: key series of a job in SQLite files, written, thinned and read."""
