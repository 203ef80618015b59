"""Short logs in the words of real programs: each one failure, its echoes, and what is right."""
