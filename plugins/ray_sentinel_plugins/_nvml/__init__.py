"""The parts of the NVML collector."""
