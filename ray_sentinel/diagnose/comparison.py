"""Jobs against each other: same steps, steady state, checkpoints and warm-up left out."""

from __future__ import annotations

import msgspec
import numpy as np

from ray_sentinel.diagnose import stats
from ray_sentinel.diagnose.case import JobCase
from ray_sentinel.diagnose.common_steps import at_common_steps, inside, not_finite
from ray_sentinel.diagnose.comparison_plots import plots
from ray_sentinel.diagnose.detect import sockets
from ray_sentinel.diagnose.jobcheck import check_job
from ray_sentinel.diagnose.logs import LogFacts
from ray_sentinel.diagnose.panel import listed
from ray_sentinel.diagnose.series import Floats
from ray_sentinel.diagnose.sweep import SWEEP, Standing, SweepRow, standing
from ray_sentinel.model.comparison import Comparison, Delta

# How one measure differs between two jobs, and whether that can be chance.

STRENGTH = 5.0
"""Number of standard errors from which a difference is significant, if it is large enough
(``LEAST``)."""
LEAST = 0.01
"""Share of the first job's level that a difference must exceed to be significant."""


def apart(one: Floats, other: Floats) -> float:
    """The standard error of the difference of two levels."""
    return float(np.hypot(stats.sigma(one) / one.size**0.5, stats.sigma(other) / other.size**0.5))


def paired(one: Floats, other: Floats) -> float:
    """The standard error of the difference of paired values at the same steps: changes that both
    jobs go through do not count as noise."""
    return float(stats.sigma(other - one) / one.size**0.5)


def delta_of(
    metric: str, title: str, unit: str, one: Floats, other: Floats, error: float | None = None
) -> Delta:
    """The difference of two sets of values; ``error`` is its standard error, by default that of two
    independent levels."""
    a, b = stats.middle(one), stats.middle(other)
    error = apart(one, other) if error is None else error
    size = abs(b - a)
    significant = size > max(STRENGTH * 1.25 * error, LEAST * abs(a)) and size > 0
    return Delta(
        metric=metric, title=title, unit=unit, first=a, second=b,
        relative=(b - a) / abs(a) if a else None, significant=significant,
    )  # fmt: skip


USUAL_WAVES = 2
"""Number of waves in which a job usually makes communicators: at its start, and when training
begins."""
THREADS = 5.0
"""Number of additional runnable threads on every host from which they are a leak and not chance."""
_CURVES = frozenset({"train.loss", "train.grad_norm"})
"""Quantities that depend on the step: they are compared step by step, not by the time spent
there."""
_PACE = frozenset({"throughput", "step time"})
SINGLE_REPLICA = "enable_single_replica_ckpt_restoring"
"""MaxText's option to read a checkpoint on one replica and broadcast it to the others."""
_ORDER = ("rdma", "nic", "cpu", "thermal", "storage", "hardware", "training", "tcp", "memory")
"""The domains, ordered by how directly they slow every step."""
_LEAK_TRACE = (
    "MaxText checkpointing.py, load_state_if_possible: restores from one replica",
    "Orbax SingleReplicaArrayHandler.deserialize",
    "Orbax multislice.broadcast_one_replica_to_all, _merge_globalized_replicas: sums over the "
    "replicas under jax.jit",
    "XLA compiles the sum to an all-reduce over a clique of GPUs that training does not use",
    "NCCL or RCCL make communicators for it, which XLA's cache keeps, and their threads poll on",
)
"""Where the threads of a restore from a single replica come from, from the outermost call to the
innermost."""


class Side(msgspec.Struct, frozen=True, kw_only=True):
    """One job: its case where it has series, and its log's facts."""

    title: str
    case: JobCase | None
    logs: LogFacts
    notes: tuple[str, ...] = ()
    """What was left out when the job was read, in sentences."""


def compare(first: Side, second: Side) -> Comparison:
    """What differs between two jobs, over the steps that both did."""
    steps = overlap(first, second)
    standing = _standing(first, second, steps) if steps is not None else ()
    deltas = _deltas(first, second, steps, standing) if steps is not None else ()
    root = _root_cause(first, second, deltas, standing)
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
        root_cause=root.text,
        culprits=root.culprits,
        standing=tuple(one.text for one in standing),
        source_trace=root.trace,
        notes=tuple(notes),
        plots=()
        if steps is None
        else plots((first.case, second.case), (first.logs, second.logs), steps, deltas),
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
    """The steps that both jobs did; None if there are none."""
    one, other = _range(first), _range(second)
    if one is None or other is None:
        return None
    low, high = max(one[0], other[0]), min(one[1], other[1])
    return (low, high) if high > low else None


def _standing(first: Side, second: Side, steps: tuple[float, float]) -> tuple[Standing, ...]:
    """The hosts of the second job that stand out, the most direct cause first."""
    if first.case is None or second.case is None:
        return ()
    found = [standing(first.case, second.case, steps, measure) for measure in SWEEP]
    known = [one for one in found if one is not None]
    return tuple(sorted(known, key=lambda one: _ORDER.index(one.measure.domain)))


def _deltas(
    first: Side, second: Side, steps: tuple[float, float], out: tuple[Standing, ...]
) -> tuple[Delta, ...]:
    if first.case is None or second.case is None:
        return _logged(first, second, steps)
    stands = {one.measure.key: one for one in out}
    found = []
    for measure in SWEEP:
        delta = _delta(first.case, second.case, measure, steps)
        if delta is None:
            continue
        if (one := stands.get(measure.key)) is not None:
            hosts = "all hosts" if one.everywhere else listed(one.hosts, 4)
            delta = msgspec.structs.replace(delta, significant=True, hosts=hosts)
        blames = delta.hosts or abs(delta.second - delta.first) >= measure.least
        cause = measure.cause if delta.significant and blames else ""
        found.append(msgspec.structs.replace(delta, cause=cause))
    if not any(delta.title in _PACE for delta in found):
        found = [*(_logged(first, second, steps) or _paced(first.case, second.case, steps)), *found]
    return tuple(found)


def _delta(
    first: JobCase, second: JobCase, measure: SweepRow, steps: tuple[float, float]
) -> Delta | None:
    """One row of the table; None if it cannot be compared."""
    key = measure.key
    panel = second.view.panel(key)
    if key == "train.throughput" and panel.metric != first.view.panel(key).metric:
        # Tokens or FLOPs, of a device or of all: each writer counts something else.
        return None
    if key in _CURVES:
        one, other = at_common_steps(first, second, key, steps)
    else:
        one, other = _levels(first, measure, steps), _levels(second, measure, steps)
    if not one.size or not other.size:
        return None
    if measure.total:
        unit, error = panel.quantity.unit, float(abs(one[0]) ** 0.5)
    else:
        unit, error = panel.unit, (paired if key in _CURVES else apart)(one, other)
    return delta_of(panel.metric, measure.title, unit, one, other, error)


def _paced(first: JobCase, second: JobCase, steps: tuple[float, float]) -> tuple[Delta, ...]:
    """From the times at which the steps were done, if neither job reports how long a step took."""

    def seconds(case: JobCase) -> Floats:
        values = case.durations[inside(case, steps)]
        return np.asarray(values[np.isfinite(values)])

    one, other = seconds(first), seconds(second)
    metric = first.line.metric
    return (delta_of(metric, "step time", "s", one, other),) if one.size and other.size else ()


def _levels(case: JobCase, measure: SweepRow, steps: tuple[float, float]) -> Floats:
    """The mean over hosts and devices in each steady cell of the common steps (N,); for what is
    counted as a whole, only the sum (1,)."""
    panel = case.view.panel(measure.key)
    if panel.empty:
        return np.empty(0)
    cells = inside(case, steps)
    if measure.total:
        return np.array([np.nansum(panel.increases()[:, cells])])
    level = stats.mean(panel.levels()[:, cells], axis=0)
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
    """How many more runnable threads every host of the second job has than the first job's; 0 if
    none."""
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
        if side.logs.failure or side.logs.ended:
            notes.append(f"{side.title}: by its log {_ended(side.logs)}")
        if side.case is not None and (check := check_job(side.case)):
            notes.append(f"{side.title}: {check}")
        if side.case is None:
            notes.append(f"{side.title} has no series; it is compared by its logs")
        else:
            notes += [f"{side.title}: {note}" for note in side.case.view.source.notes]
        notes += side.notes
        if side.logs.restored_step is not None:
            notes.append(f"{side.title} restored from step {side.logs.restored_step:.0f}")
    one, other = _waves(first), _waves(second)
    if one and other and one != other:
        notes.append(f"communicators were made in {one} waves there, {other} here")
    for what in sorted(first.logs.worker_lines.keys() | second.logs.worker_lines.keys()):
        counts = [side.logs.worker_lines.get(what, 0) for side in (first, second)]
        if counts[0] != counts[1]:
            notes.append(f"workers' logs: {what} {counts[0]} times there, {counts[1]} here")
    if first.logs.modules and second.logs.modules and first.logs.modules != second.logs.modules:
        notes.append(f"XLA compiled {first.logs.modules} modules there, {second.logs.modules} here")
    return notes


def _ended(logs: LogFacts) -> str:
    """The result of triage for a job."""
    if logs.failure:
        return f"{logs.failure}: compare only what lies before it"
    return {"completed": "it was completed", "running": "it runs", "stopped": "it was stopped"}.get(
        logs.ended, "it cannot be told how it ended"
    )


def _not_finite(first: Side, second: Side, steps: tuple[float, float]) -> list[str]:
    notes = []
    for side in (first, second):
        for measure in SWEEP:
            if measure.key in _CURVES and side.case is not None:
                said = not_finite(side.case, measure.key, measure.title, steps)
                notes += [f"{side.title}: {said}"] if said else []
    return notes


def _waves(side: Side) -> int:
    return max(side.logs.init_waves.values(), default=0)


class Root(msgspec.Struct, frozen=True):
    """The cause of a difference in speed."""

    text: str
    culprits: tuple[str, ...] = ()
    trace: tuple[str, ...] = ()


def _root_cause(
    first: Side, second: Side, deltas: tuple[Delta, ...], out: tuple[Standing, ...]
) -> Root:
    changed = {delta.title: delta for delta in deltas if delta.significant}
    pace = changed.get("step time") or changed.get("throughput")
    if not deltas:
        return Root("Nothing comparable was measured.")
    if not any(delta.title in _PACE for delta in deltas):
        return Root("How fast the jobs were was not measured in both of them.")
    if pace is None:
        return Root("No significant difference in speed.")
    text = f"{pace.title} differs by {pace.change}"
    leak = thread_leak(first, second)
    if leak >= THREADS and _restored_alone(first, second):
        return Root(
            f"{text}; every host has {leak:.0f} runnable threads more since {second.title} "
            "restored from a single replica: communicators of that restore were never destroyed, "
            "and their threads poll on.",
            trace=_LEAK_TRACE,
        )
    if (direct := _direct(second, out)) is not None:
        names = tuple(dict.fromkeys(row.title for row in direct.rows))
        return Root(
            f"{text}; {direct.text}: {direct.measure.cause}.",
            culprits=() if direct.everywhere else names,
        )
    if leak >= THREADS:
        return Root(
            f"{text}; every host has {leak:.0f} runnable threads more, which points to the "
            "software: threads that communicators left behind, or other load on all hosts."
        )
    if differing := config_difference(first.logs, second.logs):
        return Root(f"{text}; the configurations differ ({', '.join(list(differing)[:4])}).")
    return Root(f"{text}; no source of contention explains it.")


def _direct(second: Side, out: tuple[Standing, ...]) -> Standing | None:
    """The differences that stand out and can slow every step, the most direct first."""
    tcp = second.case is not None and sockets.carry(second.case)
    for one in out:
        domain = one.measure.domain
        if domain in {"tcp", "nic"} and not tcp:
            continue  # RDMA carries the collectives
        if domain == "memory" or (domain == "cpu" and one.everywhere):
            continue  # memory slows nothing by itself; threads on all hosts are judged separately
        if one.measure.key == "gpu.temp":
            continue  # heat that reduces no clock slows nothing
        return one
    return None


def _restored_alone(first: Side, second: Side) -> bool:
    """The second job restored from a single replica, and the first did not: by their settings and
    restores, and by the waves of communicators if both jobs' logs show them."""

    def restored(side: Side) -> bool:
        settings = {**side.logs.config, **side.logs.arguments}
        on = settings.get(SINGLE_REPLICA, "").strip("'\"").lower() in {"true", "1", "yes"}
        return on and (side.logs.restored_step is not None or _waves(side) > USUAL_WAVES)

    one, other = _waves(first), _waves(second)
    agree = not (one and other) or other > one
    return restored(second) and not restored(first) and agree
