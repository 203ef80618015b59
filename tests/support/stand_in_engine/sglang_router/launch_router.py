"""A router before the engine."""

from __future__ import annotations

import signal

signal.pause()
