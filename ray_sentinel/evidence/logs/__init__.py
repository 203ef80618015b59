"""Facts from log text: what lines mean, who failed first, what echoes it. Pure: text comes in."""
