"""What the training says of itself: its phases, and its steps if the plan says so."""

from __future__ import annotations

import contextlib
import json
from pathlib import Path

import ray_sentinel

sentinel = ray_sentinel.attach()
says_steps = json.loads(Path("plan.json").read_text())["attach"] == "step"


def report(step: int) -> None:
    if says_steps:
        sentinel.step(step)


def declared(phase: str) -> contextlib.AbstractContextManager[None]:
    return sentinel.phase(phase) if phase else contextlib.nullcontext()
