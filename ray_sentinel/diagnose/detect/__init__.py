"""Detectors: each reads a few quantities of a case and reports what deviates, where and when."""
