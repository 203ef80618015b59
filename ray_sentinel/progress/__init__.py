"""The rank's heartbeat: written in the rank, read by the agent; and ranks found from outside."""
