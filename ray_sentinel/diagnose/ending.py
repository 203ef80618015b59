"""How a job ended, by its planned steps and its last messages.

The training's own series end with its last step, whether it was done, was killed, or still runs: no
silence after it is visible. The planned number of steps, and what the job writes when it is done,
show more; otherwise the end is reported as unknown.
"""

from __future__ import annotations

import msgspec
import numpy as np

from ray_sentinel.diagnose import stop as stops
from ray_sentinel.diagnose.case import JobCase
from ray_sentinel.diagnose.plan import PlannedSteps, plan_of, rise
from ray_sentinel.diagnose.series import Selector
from ray_sentinel.diagnose.timeline import stall_limit
from ray_sentinel.diagnose.wording import moment

_CLOSING = ("tb_train_train_runtime", "tb_train_runtime")
"""The tags that Transformers writes when training is over, with how long it took."""


class RunEnding(msgspec.Struct, frozen=True):
    """``text`` is for people; ``early``: fewer steps were done than planned, and no more will come;
    ``done``: all of them were."""

    text: str
    early: bool = False
    done: bool = False


def find(case: JobCase) -> RunEnding | None:
    """What is known about the end; None if other series or the logs show it."""
    line, logs = case.line, case.logs
    if not line.trained or case.options.window is not None or logs.failure or logs.summary:
        return None
    if not all(name.startswith("tb_") for name in case.view.families):
        return _watched(case)
    if logs.ended == "completed":
        return RunEnding("By its log it was completed.")
    last = max(
        float(one.times[-1])
        for one in case.view.source.samples(Selector(line.metric), -np.inf, np.inf)
    )
    if _closed(case, last):
        return RunEnding("The training wrote its closing figures: it ended by itself.")
    return _by_plan(case, float(line.steps[-1]), last)


def _watched(case: JobCase) -> RunEnding | None:
    """How a job that was seen to stop ended, by its plan alone."""
    stop, plan = case.once(stops.find), plan_of(case)
    if stop is None or not stop.for_good or stop.by != "steps" or plan is None:
        return None
    step = float(np.max(case.line.steps))
    judged = plan.judge(step, rise(case))
    if judged == "done":
        return RunEnding(f"All of the {plan.text} were done.", done=True)
    if judged == "unclear" or case.logs.ended == "completed":
        return None
    return _early(plan, step, stop.at)


def _early(plan: PlannedSteps, step: float, last: float) -> RunEnding:
    return RunEnding(
        f"Ended early: step {step:.0f} of {plan.text.removesuffix(' steps')} was the last one, "
        f"written at {moment(last)}. No playbook found a fault in what was written until then; "
        "only the logs can tell why it ended, or whether it was meant to.",
        early=True,
    )


def _closed(case: JobCase, last: float) -> bool:
    return any(
        one.times[-1] >= last - case.cell
        for name in _CLOSING
        for one in case.view.source.samples(Selector(name), -np.inf, np.inf)
    )


def _by_plan(case: JobCase, step: float, last: float) -> RunEnding:
    line, plan, now = case.line, plan_of(case), case.options.now
    written = f"The last step was written at {moment(last)}"
    quiet = now is not None and now - last > stall_limit(
        line.step_seconds, line.advances, case.cell
    )
    going = now is not None and not quiet
    if plan is None:
        if going:
            return RunEnding(f"{written}; the job seems to go on.")
        return RunEnding(f"{written}; nothing here says whether the job ended by itself.")
    judged = plan.judge(step, rise(case))
    if judged == "done":
        return RunEnding(f"All of the {plan.text} were done.", done=True)
    if going:
        return RunEnding(f"Of {plan.text}; {_small(written)}, the job seems to go on.")
    if judged == "early" and quiet:
        return _early(plan, step, last)
    known = f"Of {plan.text}, step {step:.0f} was the last one: {_small(written)}"
    if judged == "unclear":
        return RunEnding(f"{known}; whether that was the end of the plan cannot be told from here.")
    return RunEnding(f"{known}; nothing here says whether it still runs, or why it ended.")


def _small(text: str) -> str:
    return text[0].lower() + text[1:]
