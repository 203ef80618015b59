"""The parts of the kernel log collector: records, what they mean, what was counted."""
