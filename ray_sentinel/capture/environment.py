"""Locates the tracing tools, and builds the environment that they run in."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Mapping

# A debugger that sees no device lists no kernels; one that loads our Python's paths or preloaded
# libraries breaks; one that asks a debuginfod server waits for the network.
_DROPPED = (
    "CUDA_VISIBLE_DEVICES",
    "NVIDIA_VISIBLE_DEVICES",
    "HIP_VISIBLE_DEVICES",
    "ROCR_VISIBLE_DEVICES",
    "LD_PRELOAD",
    "DEBUGINFOD_URLS",
    "GDBHISTFILE",
)


def clean_environment(environ: Mapping[str, str] = os.environ) -> dict[str, str]:
    """The environment for a tracer: ours, without variables that would break or mislead it."""
    kept = {
        name: value
        for name, value in environ.items()
        if name not in _DROPPED and not name.startswith("PYTHON")
    }
    return {**kept, "LC_ALL": "C.UTF-8", "TERM": "dumb"}


def find_program(name: str) -> str | None:
    """A program beside our interpreter (in a virtual environment), or else on PATH."""
    beside = os.path.join(os.path.dirname(sys.executable), name)
    if os.access(beside, os.X_OK) and not os.path.isdir(beside):
        return beside
    return shutil.which(name)
