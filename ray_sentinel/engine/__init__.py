"""Pure: events in, actions out. Imports no ray, no subprocess, no socket, no time."""
