"""Whether series and log belong to the same job, and whether they agree on what went wrong."""

from __future__ import annotations

import numpy as np

from ray_sentinel.diagnose import stats
from ray_sentinel.diagnose.case import JobCase
from ray_sentinel.diagnose.logs import LogFacts
from ray_sentinel.model.diagnosis import Diagnosis

LOSS_TOLERANCE = 0.002
"""Largest relative difference at which two losses are equal: a log rounds."""

EXPECTED: dict[str, frozenset[str]] = {
    "hang": frozenset({"hang"}),
    "heartbeat-timeout": frozenset({"heartbeat"}),
    "oom-host": frozenset({"oom"}),
    "node-fail": frozenset({"hardware", "hang"}),
    "head-lost": frozenset({"hardware", "hang"}),
    "link-down": frozenset({"network-health"}),
    "transport-lost": frozenset({"network-health", "hang"}),
    "startup-stuck": frozenset({"hang"}),
    "illegal-memory-access": frozenset({"hardware"}),
    "engine-stalled": frozenset({"hang"}),
    "gpu-lost": frozenset({"hardware"}),
    "signal-kill": frozenset({"hardware", "oom"}),
    "unknown-death": frozenset({"hardware", "oom"}),
    "nccl-timeout": frozenset({"network-health", "hang"}),
    "checkpoint-fs-error": frozenset({"checkpoint-fs-error"}),
    "nan-loss": frozenset({"training-stability"}),
    "throughput-degradation": frozenset({"training-stability", "network-health", "gpu-health"}),
}
"""The class of failure in the logs → the analyses that would confirm it."""


def check_job(case: JobCase) -> str:
    """Compare the steps and losses of the series with the log's ``completed step`` lines; empty
    without any."""
    logged, line = case.logs.steps, case.line
    if not logged:
        return ""
    if not line.steps.size:
        return "cannot be checked: the series hold no steps"
    last = logged[-1].step
    low, high = float(np.min(line.steps)), float(np.max(line.steps))
    if last < low - 1 or logged[0].step > high + 1:
        return (
            f"wrong job: the log tells of steps {logged[0].step:.0f} to {last:.0f}, the series of "
            f"{low:.0f} to {high:.0f}"
        )
    compared, agree = _losses(case)
    if compared >= 3 and agree < 0.5 * compared:
        return (
            f"wrong job: at {compared} steps known to both, only {agree} losses of log and series "
            "agree"
        )
    return f"steps fit the log (last {last:.0f} there, {high:.0f} here)" + (
        f", and {agree} of {compared} losses agree" if compared else ""
    )


def _losses(case: JobCase) -> tuple[int, int]:
    panel = case.view.panel("train.loss")
    if panel.empty:
        return 0, 0
    losses = stats.median(panel.values, 0)
    compared = agree = 0
    for one in case.logs.steps[-200:]:
        when = case.line.time_of(one.step)
        if one.loss is None or when is None:
            continue
        cell = case.cell_of(when)
        # The bridge may write a step's loss one cell before or after its number.
        near = losses[max(cell - 2, 0) : cell + 3]
        near = near[np.isfinite(near)]
        if not near.size:
            continue
        compared += 1
        agree += bool(np.min(np.abs(near - one.loss)) <= LOSS_TOLERANCE * max(abs(one.loss), 1e-9))
    return compared, agree


def confirm_triage(logs: LogFacts, diagnosis: Diagnosis) -> str:
    """Whether the series confirm what the log says went wrong; empty if it says nothing."""
    if not logs.failure:
        return ""
    expected = EXPECTED.get(logs.failure)
    if diagnosis.outcome == "unknown" or expected is None:
        return f"The log says {logs.failure}; the series neither confirm nor refute it."
    if diagnosis.analysis in expected and diagnosis.outcome == "found":
        return f"The log says {logs.failure}; the series confirm it."
    return f"The log says {logs.failure}; the series tell of something else: {diagnosis.cause}."
