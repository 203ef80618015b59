"""One node looked at now: blocked processes, kernel log, versions, GPUs, transport, log errors."""
