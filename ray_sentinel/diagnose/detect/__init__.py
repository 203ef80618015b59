"""Detectors: each reads a few quantities of a case and says what deviates, where and when."""
