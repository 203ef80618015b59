"""The parts of `ray-sentinel prometheus`, one a file."""
