"""How a job ended of which only the training's own series are known.

They end with its last step, whether it was done, was killed, or still runs: no silence after it is
seen. What the job was to do, and what it writes when it is done, tells more; the rest is said to be
unknown.
"""

from __future__ import annotations

import msgspec
import numpy as np

from ray_sentinel.diagnose.case import Case
from ray_sentinel.diagnose.series import Selector
from ray_sentinel.diagnose.timeline import stall_limit
from ray_sentinel.diagnose.wording import moment

_CLOSING = ("tb_train_train_runtime", "tb_train_runtime")
"""Transformers writes how long the training took when it is over."""


class Ending(msgspec.Struct, frozen=True):
    """``text`` for people; ``early``: fewer steps were done than planned, and no more come."""

    text: str
    early: bool = False


def told(case: Case) -> Ending | None:
    """What is known of the end; None where other series or the logs tell of it."""
    line, logs = case.line, case.logs
    if not line.trained or not all(name.startswith("tb_") for name in case.view.families):
        return None
    if case.options.window is not None or logs.failure or logs.summary:
        return None
    if logs.ended == "completed":
        return Ending("By its log it was completed.")
    last = max(
        float(one.times[-1])
        for one in case.view.source.samples(Selector(line.metric), -np.inf, np.inf)
    )
    if _closed(case, last):
        return Ending("The training wrote its closing figures: it ended by itself.")
    return _by_plan(case, float(line.steps[-1]), last)


def _closed(case: Case, last: float) -> bool:
    return any(
        one.times[-1] >= last - case.cell
        for name in _CLOSING
        for one in case.view.source.samples(Selector(name), -np.inf, np.inf)
    )


def _by_plan(case: Case, step: float, last: float) -> Ending:
    line, planned, now = case.line, case.logs.planned_steps, case.options.now
    written = f"The last step was written at {moment(last)}"
    quiet = now is not None and now - last > stall_limit(
        line.step_seconds, line.advances, case.cell
    )
    if planned is None:
        if now is not None and not quiet:
            return Ending(f"{written}; the job seems to go on.")
        return Ending(f"{written}; nothing here says whether the job ended by itself.")
    rises = np.diff(np.sort(np.unique(line.steps)))
    # Steps may be counted from 0, and the last one falls between two that are logged.
    if step + 1 + float(np.median(rises)) > planned:
        return Ending(f"All of the {planned:.0f} planned steps were done.")
    if now is not None and not quiet:
        return Ending(f"Of {planned:.0f} planned steps; {_small(written)}, the job seems to go on.")
    text = f"{_small(written)}; nothing here says whether it still runs, or why it ended."
    if not quiet:
        return Ending(f"{planned:.0f} steps were planned; {text}")
    return Ending(
        f"Ended early: step {step:.0f} of {planned:.0f} planned was the last one, written at "
        f"{moment(last)}. No playbook found a fault in what was written until then; only the logs "
        "can tell why it ended, or whether it was meant to.",
        early=True,
    )


def _small(text: str) -> str:
    return text[0].lower() + text[1:]
