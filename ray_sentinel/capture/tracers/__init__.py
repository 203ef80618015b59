"""Tracers: one tool a file, found by looking into this folder (see ``capture.tracer``)."""
