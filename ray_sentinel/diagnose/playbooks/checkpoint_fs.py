"""Checkpoint file-system error: was storage worse at the failed checkpoint than at earlier ones?

Heavy I/O, TCP retransmits and blocked processes are usual on hosts that write a checkpoint. They
mean something only in comparison with the earlier, successful checkpoints of the same job, host by
host.
"""

from __future__ import annotations

import msgspec
import numpy as np

from ray_sentinel.diagnose import stats, wording
from ray_sentinel.diagnose import stop as stops
from ray_sentinel.diagnose.anomaly import Anomaly
from ray_sentinel.diagnose.case import JobCase, everywhere
from ray_sentinel.diagnose.checkpoints import CheckpointPause
from ray_sentinel.diagnose.detect import levels
from ray_sentinel.diagnose.detect.pace import SLOWER
from ray_sentinel.diagnose.panel import listed
from ray_sentinel.diagnose.series import Floats
from ray_sentinel.diagnose.shifts import find_shifts
from ray_sentinel.model.diagnosis import CauseLocation, Diagnosis, FigureTable, Link, Outcome

NAME = "checkpoint-fs-error"
ANALYSIS = "checkpoint-fs-error"
ALIASES: tuple[str, ...] = ("checkpoint", "checkpoint-error", "8")
TITLE = "Checkpoint file-system error"
SLOWING: frozenset[str] = frozenset()

WORSE = 1.6
"""How many times the greatest peak of the earlier checkpoints two measures of a host must reach to
be worse."""
MUCH_WORSE = 2.0
"""How many times the greatest peak of the earlier checkpoints a single measure must exceed where no
second one is worse."""
LONGER = 0.5
"""Share by which saves must take longer than earlier ones."""
ALIKE = 0.5
"""Share of the worst host's level from which another host's is about the same."""
LEAST_WINDOW = 120.0
"""Seconds that a save is given where no earlier one shows how long it takes."""
_MEASURES = (
    ("io.full", "I/O pressure", "%", 80.0),
    ("tcp.retx", "TCP retransmits", "/s", 3000.0),
    ("host.procs_blocked", "blocked processes", "", 20.0),
    ("io.dirty", "dirty pages", "B", 4e9),
    ("io.writeback", "pages under writeback", "B", 4e9),
)
"""Quantity, name, unit, and the level up to which it is usual while a checkpoint is written: from
which on it is compared with earlier checkpoints, which alone tell trouble."""
FAR_WORSE = 4.0
"""How many times the earlier peaks a measure must exceed to count even below its usual level."""
FLOOR = 0.25
"""Share of the usual level below which no measure counts: a host that writes nothing shows
noise."""


class Failed(msgspec.Struct, frozen=True, kw_only=True):
    """The checkpoint that failed."""

    start: float
    end: float
    step: float | None
    said: bool
    """The log or the user names the cause."""


class Change(msgspec.Struct, frozen=True, kw_only=True):
    """One measure on one host: peaks at the failed checkpoint and at the worst earlier one."""

    host: str
    key: str
    title: str
    unit: str
    failed: float
    earlier: float
    anomaly: Anomaly | None

    @property
    def ratio(self) -> float:
        """How many times worse."""
        return self.failed / self.earlier if self.earlier > 0 else float("inf")


def applies(case: JobCase) -> float:
    """Whether a checkpoint is reported to have failed, or the job stopped when one was due."""
    if case.options.failed_checkpoint is not None or case.logs.failed_checkpoint is not None:
        return 1.0
    if case.logs.failure == "checkpoint-fs-error":
        return 1.0
    if case.once(_slower) is not None:
        return 0.5
    stop = case.once(stops.find)
    return 0.5 if stop is not None and stop.for_good and case.once(_at_save) else 0.0


def run(case: JobCase) -> Diagnosis:
    """The failed checkpoint against the earlier ones; where none failed, those that take long."""
    failed, slower = case.once(failed_checkpoint), case.once(_slower)
    if failed is None and slower is not None:
        return _slow_saves(case, slower)
    if failed is None:
        text = "No checkpoint is said to have failed, and the job did not stop in one."
        return wording.plain("not-this", "none", text, 0.85)
    earlier = [one for one in case.checkpoints if one.end < failed.start]
    if not earlier or (len(earlier) < 2 and not failed.said):
        text = "No earlier checkpoint is known that the failed one could be compared with."
        return wording.plain("unknown", "no-comparison", text, 0.3)
    changes = _changes(case, failed, [(one.start, one.end) for one in earlier])
    worse = _convincing([one for one in changes if one.anomaly is not None])
    if worse:
        return _storage(case, failed, changes, worse, len(earlier))
    text = (
        f"Storage was no worse at the failed checkpoint than at the {len(earlier)} before it: "
        "congestion did not set off the error. Look at the file system's own errors (locks, "
        "quota, a vanished file)."
    )
    outcome: Outcome = "found" if failed.said else "not-this"
    diagnosis = wording.plain(outcome, "checkpoint-not-congestion", text, 0.7)
    return msgspec.structs.replace(
        diagnosis,
        tables=(_table(case, changes),),
        weight=0.6 if failed.said else 0.0,
        window=(failed.start, failed.end),
    )


class SlowerSaves(msgspec.Struct, frozen=True, kw_only=True):
    """Checkpoints that came to hold training up for longer. Times are in seconds."""

    earlier: tuple[CheckpointPause, ...]
    later: tuple[CheckpointPause, ...]
    before: float
    after: float
    lost: float
    """The share of the training's time that is lost by it since then."""


def _slower(case: JobCase) -> SlowerSaves | None:
    """Saves that grew longer for good, by so much that training is slow for it."""
    saves = (*_unseen(case), *case.checkpoints)
    lengths = np.array([one.end - one.start for one in saves])
    starts = np.array([one.start for one in saves])
    shifts = find_shifts(lengths, starts, least=2 * case.cell, relative=LONGER)
    risen = [shift for shift in shifts if shift.size > 0]
    if not risen:
        return None
    index = risen[0].index
    before, after = stats.middle(lengths[:index]), stats.middle(lengths[index:])
    lost = (after - before) / stats.middle(np.diff(starts[index - 1 :]))
    if after < (1.0 + LONGER) * before or lost < SLOWER:
        return None
    return SlowerSaves(
        earlier=saves[:index], later=saves[index:], before=before, after=after, lost=lost
    )


def _alike(changes: list[Change], worse: list[Change]) -> set[str]:
    """Hosts on which a measure that is worse elsewhere comes to about the same level, whatever it
    was before: they use the same storage."""
    tops = {key: max(one.failed for one in worse if one.key == key)
            for key in {one.key for one in worse}}  # fmt: skip
    return {one.host for one in changes if one.failed >= ALIKE * tops.get(one.key, np.inf)}


def _unseen(case: JobCase) -> list[CheckpointPause]:
    """Saves before the first that was recognised, by the period of those: they held training up for
    too short to be seen, which is what is known of them."""
    line, saves = case.line, case.checkpoints
    if len(saves) < 2 or line.restarts:
        return []
    period = float(np.median(np.diff([one.step for one in saves])))
    found = []
    # A pause of less does not stand out from how often the step is read.
    unseen = max(3 * case.cell, line.step_seconds)
    step = saves[0].step - period
    while period >= 1.0 and step > line.steps[0]:
        index = int(np.searchsorted(line.steps, step))
        at, then = float(line.advances[index]), float(line.advances[index + 1])
        steps = float(line.steps[index + 1] - line.steps[index])
        length = max(then - at - steps * line.step_seconds, unseen)
        found.append(CheckpointPause(at, at + length, step, "period"))
        step -= period
    return found[::-1]


def _slow_saves(case: JobCase, slower: SlowerSaves) -> Diagnosis:
    worst = max(slower.later, key=lambda one: one.end - one.start)
    shown = Failed(start=worst.start, end=worst.end, step=worst.step, said=False)
    changes = _changes(case, shown, [(one.start, one.end) for one in slower.earlier], "longest")
    worse = _convincing([one for one in changes if one.anomaly is not None])
    hosts = sorted({one.host for one in worse} | _alike(changes, worse))
    shared = everywhere(len(hosts), len(case.hosts))
    first = slower.later[0]
    said = (
        f"checkpoints hold training up for {slower.after:.0f} s each, earlier ones for "
        f"{slower.before:.0f} s"
    )
    grown = Anomaly(
        kind="checkpoint.longer", text=said, at=first.start, uncertainty=case.cell,
        size=slower.after - slower.before, metric=case.line.metric,
        promql=case.promql("train.step"),
    )  # fmt: skip
    anomalies = sorted((one.anomaly for one in worse if one.anomaly), key=lambda a: a.at)
    where = f"all {len(hosts)} hosts" if shared else listed(hosts)
    why = (
        f"Storage was clearly worse meanwhile on {where} ({anomalies[0].text})."
        if anomalies
        else "What is recorded of the hosts' storage does not show why."
    )
    return Diagnosis(
        outcome="found",
        cause="checkpoint-slow",
        root_cause=f"Since {wording.moment(first.start)} {said}: {slower.lost:.0%} of the time is "
        f"lost by it. {why}",
        confidence=0.75 if anomalies else 0.6,
        weight=0.55,
        window=(first.start, slower.later[-1].end),
        onset=first.start,
        culprits=()
        if shared
        else tuple(
            CauseLocation(host=one.host, reason=one.text)
            for one in {anomaly.host: anomaly for anomaly in reversed(anomalies)}.values()
        ),
        chain=(*wording.linked(anomalies[:6]), grown.link("symptom" if anomalies else "root")),
        evidence=(grown.fact(), *(one.fact() for one in anomalies)),
        tables=(_table(case, changes),),
        anomalies=(said, *(one.text for one in anomalies)),
        next_steps=(
            "Have the storage's own load at that time looked at, and what else writes to it.",
            "Save less often, or asynchronously, until it is fast again.",
        ),
    )


def _at_save(case: JobCase) -> bool:
    """The signature of a save shows right after the last step."""
    stop = case.once(stops.find)
    if stop is None:
        return False
    tail = levels.states(case, stop.latest + LEAST_WINDOW, stop.end)
    if sum(one.state == "resting" for one in tail) <= 0.5 * len(tail):
        # Ranks that died in a save leave their GPUs alone; these wait or work.
        return False
    near = (case.times >= stop.at - 2 * case.cell) & (
        case.times <= stop.at + LEAST_WINDOW + 2 * stop.uncertainty
    )
    return bool(stops.at_checkpoint(case) and case.saving[near].any())


def failed_checkpoint(case: JobCase) -> Failed | None:
    """Named by the user or the log, else the save in which the job stopped."""
    step = case.options.failed_checkpoint
    step = step if step is not None else case.logs.failed_checkpoint
    longest = max([one.end - one.start for one in case.checkpoints], default=LEAST_WINDOW)
    if step is not None:
        known = [one for one in case.checkpoints if abs(one.step - step) <= 1]
        if known:
            return Failed(start=known[-1].start, end=known[-1].end, step=step, said=True)
        at = case.line.time_of(step) or case.line.last_progress
        if at is None:
            return None
        end = min(at + max(longest, LEAST_WINDOW), case.line.end)
        return Failed(start=at, end=end, step=step, said=True)
    stop = case.once(stops.find)
    said = case.logs.failure == "checkpoint-fs-error"
    if stop is None or not (said or case.once(_at_save)):
        return None
    end = min(stop.at + max(1.5 * longest, LEAST_WINDOW), stop.end)
    return Failed(start=stop.at, end=end, step=stop.step, said=said)


def _changes(
    case: JobCase, failed: Failed, earlier: list[tuple[float, float]], which: str = "failed"
) -> list[Change]:
    found = []
    for key, title, unit, least in _MEASURES:
        panel = case.view.panel(key)
        if panel.empty:
            continue
        width = max(1, int(30.0 / case.cell))
        for row, series in zip(panel.rows, panel.levels(), strict=True):
            calm = stats.smoothed(series, width)
            now = _peak(case, calm, failed.start, failed.end)
            before = [_peak(case, calm, start, end + case.cell) for start, end in earlier]
            known = [peak for peak in before if np.isfinite(peak)]
            if not known or not np.isfinite(now):
                continue
            top = max(known)
            beyond = now > least or now > max(FAR_WORSE * top, FLOOR * least)
            bad = now > WORSE * top and now > 2 * top - min(known) and beyond
            anomaly = None
            if bad:
                cells = np.flatnonzero(
                    (case.times >= failed.start) & (case.times <= failed.end)
                    & (np.nan_to_num(calm) > max(top, 0.5 * now))
                )  # fmt: skip
                at = float(case.times[cells[0]]) if cells.size else failed.start
                anomaly = Anomaly(
                    kind=f"checkpoint.{key}",
                    text=f"{row.host}: {title} up to {wording.amount(now, unit)} at the {which} "
                    f"checkpoint, at most {wording.amount(top, unit)} at earlier ones",
                    at=at, uncertainty=case.cell, host=row.host, size=now,
                    metric=panel.metric, promql=panel.promql(row),
                )  # fmt: skip
            found.append(Change(host=row.host, key=key, title=title, unit=unit, failed=now,
                                earlier=top, anomaly=anomaly))  # fmt: skip
    return found


def _convincing(worse: list[Change]) -> list[Change]:
    """Storage is uneven by nature: one measure a little higher than before proves nothing."""
    return [
        one
        for one in worse
        if one.ratio > MUCH_WORSE or sum(other.host == one.host for other in worse) >= 2
    ]


def _peak(case: JobCase, values: Floats, start: float, end: float) -> float:
    inside = (case.times >= start) & (case.times <= end)
    return float(stats.largest(values[inside])) if inside.any() else float("nan")


def _storage(
    case: JobCase, failed: Failed, changes: list[Change], worse: list[Change], count: int
) -> Diagnosis:
    hosts = sorted({one.host for one in worse})
    anomalies = sorted((one.anomaly for one in worse if one.anomaly), key=lambda a: a.at)
    text = (
        f"Congested storage at the failed checkpoint: on {listed(hosts)} it was clearly worse than "
        f"at the {count} checkpoints before ({anomalies[0].text}); that set off the file-system "
        "error."
    )
    step = f" at step {failed.step:.0f}" if failed.step is not None else ""
    chain = wording.linked(anomalies[:6])
    chain.append(
        Link(role="symptom", text=f"the checkpoint{step} fails", at=failed.start,
             uncertainty=failed.end - failed.start)
    )  # fmt: skip
    return Diagnosis(
        outcome="found",
        cause="checkpoint-storage",
        root_cause=text,
        confidence=0.8 if failed.said else 0.65,
        weight=0.94 if failed.said else 0.79,
        window=(failed.start, failed.end),
        onset=anomalies[0].at,
        culprits=tuple(
            CauseLocation(host=host, reason=next(a.text for a in anomalies if a.host == host))
            for host in hosts
        ),
        chain=tuple(chain),
        evidence=tuple(a.fact() for a in anomalies),
        tables=(_table(case, changes),),
        anomalies=tuple(a.text for a in anomalies),
        next_steps=(
            "Have the storage's own load and errors at that time looked at.",
            "Stagger or thin out checkpoint writers; keep other I/O off the head node.",
            "Restart from the last good checkpoint.",
        ),
    )


def _table(case: JobCase, changes: list[Change]) -> FigureTable:
    ordered = sorted(changes, key=lambda one: (one.anomaly is None, one.host, one.key))
    return FigureTable(
        title="Peaks at the failed checkpoint against the earlier ones",
        columns=("Host", "Measure", "Failed", "Earlier at most", "Interpretation"),
        rows=tuple(
            (one.host, one.title, wording.amount(one.failed, one.unit),
             wording.amount(one.earlier, one.unit),
             "worse" if one.anomaly is not None else "as before")
            for one in ordered[:40]
        ),
        promql=case.promql("io.full"),
    )  # fmt: skip
