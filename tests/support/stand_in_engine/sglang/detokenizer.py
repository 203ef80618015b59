"""A process that is part of the engine, and holds nothing of the model."""

from __future__ import annotations

import signal

from sglang.titles import set_title

set_title("sglang::detokenizer")
signal.pause()
