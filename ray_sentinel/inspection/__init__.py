"""The current state of one node: blocked processes, kernel log, versions, GPUs, transport, log
errors."""
