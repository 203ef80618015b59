"""Jobs against each other: same steps, steady state, checkpoints and warm-up left out."""

from __future__ import annotations

import msgspec
import numpy as np

from ray_sentinel.diagnose import stats
from ray_sentinel.diagnose.case import Case
from ray_sentinel.diagnose.common_steps import at_common_steps, inside, not_finite
from ray_sentinel.diagnose.delta import Delta, apart, delta_of, paired
from ray_sentinel.diagnose.logs import LogFacts
from ray_sentinel.diagnose.series import Floats

THREADS = 5.0
"""Runnable threads more on every host that are a leak, not chance."""
_METRICS = (
    ("train.throughput", "throughput"), ("train.step_time", "step time"),
    ("rdma.retx", "RDMA retransmits"), ("rdma.ack_timeout", "RDMA ACK timeouts"),
    ("host.procs_running", "runnable threads"), ("host.context_switches", "context switches"),
    ("tcp.retx", "TCP retransmits"), ("io.full", "I/O pressure"), ("mem.used", "host memory"),
    ("gpu.temp", "GPU temperature"), ("gpu.clock", "GPU core clock"), ("gpu.power", "GPU power"),
    ("train.loss", "loss"), ("train.grad_norm", "gradient norm"),
)  # fmt: skip
_CURVES = frozenset({"train.loss", "train.grad_norm"})
"""Functions of the step: compared step by step, not by the time that was spent there."""
_PACE = frozenset({"throughput", "step time"})


class Side(msgspec.Struct, frozen=True, kw_only=True):
    """One job: its case where it has series, and its log's facts."""

    title: str
    case: Case | None
    logs: LogFacts
    notes: tuple[str, ...] = ()
    """What was left out when it was read."""


class Comparison(msgspec.Struct, frozen=True, kw_only=True):
    """One job against the first."""

    first: str
    second: str
    config: dict[str, tuple[str, str]]
    steps: tuple[float, float] | None
    deltas: tuple[Delta, ...]
    root_cause: str
    notes: tuple[str, ...] = ()


def compare(first: Side, second: Side) -> Comparison:
    """What differs between two jobs, over the steps that both did."""
    steps = overlap(first, second)
    deltas = _deltas(first, second, steps) if steps is not None else ()
    notes = list(_notes(first, second))
    notes += _not_finite(first, second, steps) if steps is not None else ()
    if steps is None:
        notes.append("the jobs have no steps in common: nothing that was measured is comparable")
    return Comparison(
        first=first.title,
        second=second.title,
        config=config_difference(first.logs, second.logs),
        steps=steps,
        deltas=deltas,
        root_cause=_root_cause(first, second, deltas),
        notes=tuple(notes),
    )


def config_difference(first: LogFacts, second: LogFacts) -> dict[str, tuple[str, str]]:
    """Parameters that differ; an absent one is "-"."""
    one, other = ({**logs.config, **logs.arguments} for logs in (first, second))
    names = sorted(one.keys() | other.keys())
    return {
        name: (one.get(name, "-"), other.get(name, "-"))
        for name in names
        if one.get(name) != other.get(name)
    }


def _range(side: Side) -> tuple[float, float] | None:
    if side.case is not None and side.case.line.steps.size:
        return float(side.case.line.steps.min()), float(side.case.line.steps.max())
    steps = [step.step for step in side.logs.steps]
    return (min(steps), max(steps)) if steps else None


def overlap(first: Side, second: Side) -> tuple[float, float] | None:
    """The steps that both jobs did; None where there are none."""
    one, other = _range(first), _range(second)
    if one is None or other is None:
        return None
    low, high = max(one[0], other[0]), min(one[1], other[1])
    return (low, high) if high > low else None


def _deltas(first: Side, second: Side, steps: tuple[float, float]) -> tuple[Delta, ...]:
    if first.case is None or second.case is None:
        return _logged(first, second, steps)
    found = []
    for key, title in _METRICS:
        if key in _CURVES:
            one, other = at_common_steps(first.case, second.case, key, steps)
        else:
            one, other = _levels(first.case, key, steps), _levels(second.case, key, steps)
        if one.size and other.size:
            panel = second.case.view.panel(key)
            if key == "train.throughput" and panel.metric != first.case.view.panel(key).metric:
                # Tokens or FLOPs, of a device or of all: each writer counts something else.
                continue
            unit = panel.quantity.unit + ("/s" if panel.quantity.kind == "counter" else "")
            error = paired(one, other) if key in _CURVES else apart(one, other)
            found.append(delta_of(panel.metric, title, unit, one, other, error))
    if not any(delta.title in _PACE for delta in found):
        found = [*(_logged(first, second, steps) or _paced(first.case, second.case, steps)), *found]
    return tuple(found)


def _paced(first: Case, second: Case, steps: tuple[float, float]) -> tuple[Delta, ...]:
    """From the times at which the steps were done, where neither job tells how long one took."""

    def seconds(case: Case) -> Floats:
        values = case.durations[inside(case, steps)]
        return np.asarray(values[np.isfinite(values)])

    one, other = seconds(first), seconds(second)
    metric = first.line.metric
    return (delta_of(metric, "step time", "s", one, other),) if one.size and other.size else ()


def _levels(case: Case, key: str, steps: tuple[float, float]) -> Floats:
    """The mean over hosts and devices in each steady cell of the common steps (N,)."""
    panel = case.view.panel(key)
    if panel.empty:
        return np.empty(0)
    values = panel.rates() if panel.quantity.kind == "counter" else panel.values
    level = stats.mean(values[:, inside(case, steps)], axis=0)
    return np.asarray(level[np.isfinite(level)])


def _logged(first: Side, second: Side, steps: tuple[float, float]) -> tuple[Delta, ...]:
    """From the log's step times alone, where a job has no series."""

    def seconds(side: Side) -> Floats:
        return np.array([
            step.seconds for step in side.logs.steps
            if step.seconds is not None and steps[0] + 5 < step.step <= steps[1]
        ])  # fmt: skip

    one, other = seconds(first), seconds(second)
    return (delta_of("log", "step time", "s", one, other),) if one.size and other.size else ()


def thread_leak(first: Side, second: Side) -> float:
    """Runnable threads that every host of the second job has more than the first's; else 0."""
    if first.case is None or second.case is None:
        return 0.0
    levels = []
    for case in (first.case, second.case):
        panel = case.view.panel("host.procs_running")
        if panel.empty:
            return 0.0
        levels.append(stats.median(panel.values[:, case.steady], axis=1))
    usual = stats.middle(levels[0])
    return max(float(np.nanmin(levels[1])) - usual, 0.0)


def _notes(first: Side, second: Side) -> list[str]:
    notes = []
    for side in (first, second):
        if side.case is None:
            notes.append(f"{side.title} has no series; it is compared by its logs")
        else:
            notes += [f"{side.title}: {note}" for note in side.case.view.source.notes]
        notes += side.notes
        if side.logs.restored_step is not None:
            notes.append(f"{side.title} restored from step {side.logs.restored_step:.0f}")
    one, other = (max(s.logs.init_waves.values(), default=0) for s in (first, second))
    if one and other and one != other:
        notes.append(f"communicators were made in {one} waves there, {other} here")
    if first.logs.modules and second.logs.modules and first.logs.modules != second.logs.modules:
        notes.append(f"XLA compiled {first.logs.modules} modules there, {second.logs.modules} here")
    return notes


def _not_finite(first: Side, second: Side, steps: tuple[float, float]) -> list[str]:
    notes = []
    for side in (first, second):
        for key, title in _METRICS:
            if key in _CURVES and side.case is not None:
                said = not_finite(side.case, key, title, steps)
                notes += [f"{side.title}: {said}"] if said else []
    return notes


def _root_cause(first: Side, second: Side, deltas: tuple[Delta, ...]) -> str:
    changed = {delta.title: delta for delta in deltas if delta.significant}
    pace = changed.get("step time") or changed.get("throughput")
    if not deltas:
        return "Nothing comparable was measured."
    if not any(delta.title in _PACE for delta in deltas):
        return "How fast the jobs were was not measured in both of them."
    if pace is None:
        return "No significant difference in speed."
    text = f"{pace.title} differs by {pace.change}"
    leak = thread_leak(first, second)
    if (rdma := changed.get("RDMA retransmits")) and rdma.second > rdma.first:
        return f"{text}; RDMA retransmits are the difference that slows collectives."
    if leak >= THREADS:
        return (
            f"{text}; every host has {leak:.0f} runnable threads more, which points to the "
            "software: threads that communicators left behind, or other load on all hosts."
        )
    if differing := config_difference(first.logs, second.logs):
        return f"{text}; the configurations differ ({', '.join(list(differing)[:4])})."
    return f"{text}; no source of contention explains it."
