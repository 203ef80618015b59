"""Facts from log text: what lines mean, who failed first, and what follows from that. Pure."""
