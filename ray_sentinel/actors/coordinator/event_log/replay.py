"""Replays an event log: what was reported then, and what this version would report on the same
events.

The engine of this version processes the recorded events again, without the incidents that were
recorded after them. A recorded answer belongs to the incident that requested it then; if the
incidents have other numbers now, it goes to the open case of the same job. Flight recorders, NCCL
RAS and the last look at stragglers before an incident are judged again, too, by the evidence that
was kept with them.

It needs neither Ray nor anything of the machine that wrote the log.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import msgspec

from ray_sentinel.actors.coordinator.engine_loop import log_failures
from ray_sentinel.actors.coordinator.event_log.evidence_process import EvidenceJudge
from ray_sentinel.actors.coordinator.event_log.log import (
    SegmentHeader,
    salvaged_segment,
    segments,
    unpacked_state,
)
from ray_sentinel.actors.coordinator.event_log.recovery import state_of
from ray_sentinel.actors.coordinator.gathering.judged_evidence import Explained, with_verdict
from ray_sentinel.config import Config
from ray_sentinel.engine.actions import Publish
from ray_sentinel.engine.engine import Engine
from ray_sentinel.engine.events import (
    AnyEvent,
    CaptureDone,
    IncidentTold,
    NoticeSent,
    RasExplained,
    RecorderExplained,
    StacksTaken,
    StragglersKept,
)
from ray_sentinel.engine.incidents.case import OURSELVES
from ray_sentinel.engine.state import incidents_in
from ray_sentinel.engine.straggling import told_as
from ray_sentinel.engine.verdicts.judgement import EvidenceScores
from ray_sentinel.engine.verdicts.suspects import weigh
from ray_sentinel.errors import InputError
from ray_sentinel.masking import mask_record
from ray_sentinel.model.identity import ProcessId
from ray_sentinel.model.incident import Incident, Verdict
from ray_sentinel.model.straggler import Busy, StragglerFacts

AFTER = 120.0
"""Seconds after an incident's last report whose events are judged too: today's rules may report it
later."""
APART = 60.0
"""Seconds between the beginnings of two incidents of one job that may still be the same."""
SAME_SECONDS = 1e-3
"""Seconds by which equal times may differ through rounding, after additions and subtractions."""

_OfIncident = CaptureDone | NoticeSent | RasExplained | RecorderExplained | StacksTaken


class ReplayedIncident(msgspec.Struct, frozen=True, kw_only=True):
    """One incident, as it was last reported and as it would be reported now; None if it is not.
    Times are those of the log's events."""

    then: Incident | None
    now: Incident | None
    notes: tuple[str, ...] = ()
    """Why the two cannot be compared in full, or why it is not reported now."""
    scores: EvidenceScores | None = None
    """What was weighed when it was reported now. None where one finding alone had the whole answer,
    as for jobs of Ray actors, whose answer is the chain of waits."""

    @property
    def differences(self) -> tuple[str, ...]:
        """What differs: "kind", "culprits", "sentence", "confidence", "when", "straggler". A number
        that was fitted anew is no difference: see ``is_fitted_anew``."""
        then, now = self.then, self.now
        if then is None or now is None:
            return ("told",)
        return tuple(
            name
            for name, differs in (
                ("kind", then.kind != now.kind),
                ("culprits", culprits_of(then) != culprits_of(now)),
                ("sentence", then.summary != now.summary),
                ("confidence", _sure(then) != _sure(now) and not self.is_fitted_anew),
                ("when", not _same_times(then, now)),
                ("straggler", straggler_of(then) != straggler_of(now)),
            )
            if differs
        )

    @property
    def is_fitted_anew(self) -> bool:
        """Whether only the number of the confidence differs, on the same evidence: how often such
        evidence is right was fitted anew since then."""
        then = self.then.verdict if self.then is not None else None
        now = self.now.verdict if self.now is not None else None
        if then is None or now is None or then.confidence == now.confidence:
            return False
        return bool(now.culprits) and _against_culprits(then) == _against_culprits(now)


class Replay(msgspec.Struct, frozen=True, kw_only=True):
    """A log, or the part of it that contains an incident, replayed."""

    folder: str
    events: int
    """How many events were judged."""
    begin: float
    end: float
    """The times of the first (``begin``) and the last of these events."""
    incidents: tuple[ReplayedIncident, ...]
    """The incidents, oldest first."""
    problems: tuple[str, ...] = ()
    """What could not be read or judged, each with the name of the file."""


def culprits_of(incident: Incident) -> list[tuple[str, str, int | None]]:
    """The culprits that it names: their names for people, host, pid; in order."""
    culprits = incident.verdict.culprits if incident.verdict is not None else ()
    return sorted((one.label, one.host, one.pid) for one in culprits)


def straggler_of(incident: Incident) -> tuple[str, str, float] | None:
    """Who slowed the job down before: the kind, whom, and the cost in percent; None for nobody."""
    found = incident.straggler
    if found is None or not found.whom:
        return None
    return found.kind, found.whom, found.cost_percent


def _sure(incident: Incident) -> float | None:
    return incident.verdict.confidence if incident.verdict is not None else None


def _against_culprits(verdict: Verdict) -> list[tuple[int, str, float]]:
    """What each source puts on each rank that is named."""
    named = {one.rank for one in verdict.culprits}
    return sorted(
        (item.rank, item.source, round(item.weight, 3))
        for item in verdict.evidence
        if item.rank is not None and item.rank in named and item.weight
    )


def _same_times(then: Incident, now: Incident) -> bool:
    pairs = (
        (then.suspected_at, now.suspected_at),
        (then.confirmed_at, now.confirmed_at),
        (then.resolved_at, now.resolved_at),
    )
    return all(
        a == b or (a is not None and b is not None and abs(a - b) < SAME_SECONDS) for a, b in pairs
    )


class _Segment(NamedTuple):
    """What the first reading of a segment gives."""

    path: Path
    header: SegmentHeader
    known: dict[str, Incident]
    """The incidents known before its first event, suspicions included."""
    with_state: bool


class RecordedLog:
    """A log in ``folder``: its segments, and all that was reported in it.

    Raises InputError if there is none, or nothing of it can be read.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.problems: list[str] = []
        self._segments: list[_Segment] = []
        self._told: dict[tuple[str, float], Incident] = {}
        self._of_states: dict[tuple[str, float], Incident] = {}
        paths = segments(folder)
        if not paths:
            raise InputError(f"{folder}: holds no event log (NNNNNN.jsonl or NNNNNN.jsonl.gz)")
        for path in paths:
            self._read_segment(path)
        if not self._segments:
            raise InputError("; ".join(self.problems[:4]))

    @property
    def reported(self) -> list[Incident]:
        """Each incident as it was last reported, oldest first."""
        # What was reported before the segments that are left is only in their states.
        known = self._of_states | self._told
        return sorted(known.values(), key=lambda one: (one.suspected_at, one.id))

    def _read_segment(self, path: Path) -> None:
        try:
            header, events, problems = salvaged_segment(path)
        except InputError as error:
            self.problems.append(str(error))
            return
        self.problems += _few(problems)
        known: dict[str, Incident] = {}
        with_state = False
        try:
            if state := unpacked_state(header):
                known, with_state = incidents_in(state), True
        except (InputError, ValueError, RecursionError) as error:
            self.problems.append(f"{path}: the engine's state is of no use: {error}")
        self._segments.append(_Segment(path, header, known, with_state))
        told = (event.incident for event in events if isinstance(event, IncidentTold))
        for where, incidents in (
            (self._of_states, known.values()),
            (self._told, tuple(told)),
        ):
            confirmed = (one for one in incidents if one.confirmed_at is not None)
            where.update({_identity(one): one for one in confirmed})

    def replay(self, config: Config, only: Incident | None = None) -> Replay:
        """Replay the log, or the part that contains the incident ``only``. Raises ConfigError."""
        first = self._first_of(only) if only is not None else 0
        told = [only] if only is not None else self.reported
        run = _Run(config, self._segments[first], told if only is None else self.reported)
        until = math.inf if only is None or only.resolved_at is None else only.resolved_at + AFTER
        problems: list[str] = []
        for index, segment in enumerate(self._segments[first:], start=first):
            if index > first and (gap := self._gap(index)):
                problems.append(gap)
                run.begin(segment)
            for event in salvaged_segment(segment.path)[1]:
                if event.time > until and not run.is_open(only):
                    return self._result(run, told, only, problems)
                run.handle(event)
        return self._result(run, told, only, problems)

    def _result(
        self, run: _Run, told: list[Incident], only: Incident | None, problems: list[str]
    ) -> Replay:
        found = run.compared(told)
        if only is not None:
            found = [one for one in found if one.then is not None]
        return Replay(
            folder=str(self.folder),
            events=run.events,
            begin=run.first,
            end=run.last,
            incidents=tuple(found),
            problems=(*self.problems, *problems, *run.problems),
        )

    def _first_of(self, incident: Incident) -> int:
        """The newest segment that begins before the incident and with a state; otherwise the oldest
        that begins before it."""
        before = [
            index
            for index, one in enumerate(self._segments)
            if one.header.started_at <= incident.suspected_at + SAME_SECONDS
            and not _holds(one.known, incident)
        ]
        return next((index for index in reversed(before) if self._segments[index].with_state), 0)

    def _gap(self, index: int) -> str:
        """What is missing before a segment; "" if nothing is."""
        before, segment = self._segments[index - 1], self._segments[index]
        if segment.header.lost:
            return (
                f"{segment.path}: {segment.header.lost} events before it are missing: what was"
                " known at its beginning is taken over as it was recorded"
            )
        numbers = (int(one.path.name.partition(".")[0]) for one in (before, segment))
        last, number = numbers
        if number != last + 1 and segment.with_state:
            return (
                f"{segment.path}: the {number - last - 1} segments before it are missing or cannot"
                " be read: what was known at its beginning is taken over as it was recorded"
            )
        return ""


def recorded_logs(folder: Path) -> list[Path]:
    """The folders of event logs in ``folder``: itself, or those of a ``log_dir``, or of its
    ``events/``."""
    if segments(folder):
        return [folder]
    below = folder / "events" if (folder / "events").is_dir() else folder
    try:
        return sorted(path for path in below.iterdir() if path.is_dir() and segments(path))
    except OSError:
        return []


class _Run:
    """The engine over recorded events."""

    def __init__(self, config: Config, segment: _Segment, told: list[Incident]) -> None:
        self._config = config
        self._told = {incident.id: incident for incident in told}
        self._before: dict[tuple[str, float], Incident] = {}
        self._now: dict[tuple[str, float], Incident] = {}
        self._scores: dict[tuple[str, float], EvidenceScores] = {}
        """The scores of each incident that is reported now, at the moment of its first report."""
        self._judge = EvidenceJudge(segment.path.parent)
        self._slowed: dict[str, tuple[float, StragglerFacts]] = {}
        """The last look at stragglers before each incident, by its number then: the look's time and
        what it shows now."""
        self._as_then: dict[str, list[str]] = {}
        """Why answers were not judged again, by the number of their incident then."""
        self.problems: list[str] = []
        self.events = 0
        self.first = self.last = segment.header.started_at
        self.begin(segment)

    def begin(self, segment: _Segment) -> None:
        """Continue with the engine as it was before a segment."""
        self._engine: Engine = Engine(self._config, state=state_of(segment.header))
        known = {_identity(one): one for one in self._engine.incidents(everything=True)}
        self._before |= {key: one for key, one in known.items() if key not in self._now}

    def handle(self, event: AnyEvent) -> None:
        """Judge one event."""
        self.first = self.first if self.events else event.time
        self.last = event.time
        self.events += 1
        if isinstance(event, IncidentTold):
            return  # what was concluded from the events then
        if isinstance(event, StragglersKept):
            self._judge_stragglers(event)
            return
        if isinstance(event, Explained):
            event = self._judged_anew(event)
        if isinstance(event, _OfIncident) and event.incident:
            event = msgspec.structs.replace(event, incident=self._number_now(event))
        actions = self._engine.handle(event)
        said = log_failures(self._engine)
        self.problems += [problem for problem in said if problem not in self.problems]
        for action in actions:
            if isinstance(action, Publish):
                self._keep(action.incident.id)

    def _judged_anew(self, event: Explained) -> Explained:
        """The answer with the verdict of this version; as it was recorded, if older versions kept
        no evidence, or it is not to be had."""
        if event.judged_from is None:
            return event
        try:
            return with_verdict(event, self._judge.facts(event))
        except InputError as error:
            what = "flight recorders" if isinstance(event, RecorderExplained) else "NCCL RAS"
            self._take_over(event.incident, what, error)
            return event

    def _judge_stragglers(self, event: StragglersKept) -> None:
        if event.incident not in self._told:
            return
        try:
            facts = self._judge.facts(event)
        except InputError as error:
            self._take_over(event.incident, "stragglers", error)
            return
        if isinstance(facts, StragglerFacts):
            # Of each rank's times nothing is told: a log may have many incidents.
            facts = msgspec.structs.replace(mask_record(facts), busy=_named(facts))
            self._slowed[event.incident] = event.at, facts

    def _take_over(self, incident: str, what: str, error: InputError) -> None:
        note = f"{what} could not be judged anew, so the verdict of then is taken over: {error}"
        notes = self._as_then.setdefault(incident, [])
        if note not in notes:
            notes.append(note)

    def _with_straggler(self, then: Incident, now: Incident | None) -> Incident | None:
        """What would be told now, with what the same look shows now. Where another look counts now,
        or an incident had the same number before, its verdict stays."""
        at, facts = self._slowed.get(then.id, (0.0, None))
        told = [one.straggler for one in (then, now) if one is not None and one.straggler]
        if now is None or facts is None or len(told) < 2:
            return now
        if any(abs(one.at - at) >= SAME_SECONDS for one in told):
            return now
        status = told_as(facts, told[1].at, told[1].heat[:-1])
        return msgspec.structs.replace(now, straggler=status)

    def _keep(self, number: str) -> None:
        store = self._engine.store
        if (known := store.incidents.get(number)) is None:
            return
        key = _identity(known)
        self._now[key] = known
        case = store.cases.get(number)
        if case is None or key in self._scores or known.confirmed_at != self.last:
            return
        if not any(finding.verdict for finding in case.findings.values()):
            self._scores[key] = weigh(case, self.last)

    def is_open(self, incident: Incident | None) -> bool:
        """Whether the case of that incident's job is open; always true for None."""
        if incident is None:
            return True
        cases = self._engine.store.cases.values()
        return any(_about(case.incident) == _about(incident) for case in cases)

    def _number_now(self, event: _OfIncident) -> str:
        """The number of the incident to which an answer belongs."""
        cases = self._engine.store.cases
        told = self._told.get(event.incident)
        case = cases.get(event.incident)
        if told is not None:
            if case is not None and _about(case.incident) == _about(told):
                return event.incident
            same = (n for n, one in cases.items() if _about(one.incident) == _about(told))
            return next(same, event.incident)
        seen = {fact.process for fact in event.facts} if isinstance(event, StacksTaken) else set()
        if case is not None and (not seen or seen & case.job.ranks.keys()):
            return event.incident
        return self._of_processes(seen) or event.incident

    def _of_processes(self, seen: set[ProcessId]) -> str:
        cases = self._engine.store.cases.items()
        found = (number for number, case in cases if seen & case.job.ranks.keys())
        return next(found, "")

    def compared(self, told: list[Incident]) -> list[ReplayedIncident]:
        """What was reported beside what is reported now, oldest first."""
        everything = self._engine.incidents(everything=True)
        last = {_identity(one): one for one in everything}
        now = self._before | {key: last.get(key, one) for key, one in self._now.items()} | last
        left = [one for one in now.values() if one.confirmed_at is not None]
        found: list[ReplayedIncident] = []
        for then in told:
            one = _counterpart(then, left)
            if one is not None:
                left.remove(one)
            notes = self._notes(then, one)
            scores = self._scores.get(_identity(one)) if one is not None else None
            now_told = self._with_straggler(then, one)
            found.append(
                ReplayedIncident(then=then, now=now_told, notes=tuple(notes), scores=scores)
            )
        found += [
            ReplayedIncident(then=None, now=one, scores=self._scores.get(_identity(one)))
            for one in left
        ]
        return sorted(found, key=_begin)

    def _notes(self, then: Incident, now: Incident | None) -> Iterator[str]:
        before = self._before.get(_identity(then))
        if before is not None and before.resolved_at is not None:
            yield "not judged anew: all of it lies before the events that are left"
        elif before is not None:
            yield (
                "its beginning is not in the events that are left: what was known then is taken"
                " over as it was recorded, and only what came after is judged anew"
            )
        elif then.confirmed_at is not None and then.confirmed_at < self.first:
            yield "it was told before the first event that is left: there is nothing to judge"
        yield from _few(self._as_then.get(then.id, []))
        if now is None:
            suspected = (
                one
                for one in self._engine.incidents(everything=True)
                if _about(one) == _about(then)
                and one.confirmed_at is None
                and abs(one.suspected_at - then.suspected_at) < APART
            )
            for one in suspected:
                why = one.history[-1].why if one.history else ""
                yield f"now it is {one.state} only" + (f": {why}" if why else "")


def _counterpart(then: Incident, among: list[Incident]) -> Incident | None:
    """The same incident: one of the same job, over the same time; preferably with the same
    number."""
    end = then.resolved_at if then.resolved_at is not None else math.inf

    def together(one: Incident) -> bool:
        until = one.resolved_at if one.resolved_at is not None else math.inf
        overlap = one.suspected_at <= end and then.suspected_at <= until
        return _about(one) == _about(then) and (
            overlap or abs(one.suspected_at - then.suspected_at) < APART
        )

    def order(one: Incident) -> tuple[bool, float]:
        return one.id != then.id, abs(one.suspected_at - then.suspected_at)

    return min(filter(together, among), key=order, default=None)


def _about(incident: Incident) -> tuple[str, int, bool]:
    return incident.job, incident.attempt, incident.rule.startswith(OURSELVES)


def _identity(incident: Incident) -> tuple[str, float]:
    """Identifies an incident: numbers are used again after a restart without a log."""
    return incident.id, round(incident.suspected_at, 3)


def _holds(known: dict[str, Incident], incident: Incident) -> bool:
    other = known.get(incident.id)
    return other is not None and _identity(other) == _identity(incident)


def _named(facts: StragglerFacts) -> tuple[Busy, ...]:
    ranks = frozenset(facts.ranks)
    return tuple(one for one in facts.busy if one.rank in ranks)


def _begin(one: ReplayedIncident) -> float:
    incident = one.then or one.now
    return incident.suspected_at if incident is not None else 0.0


def _few(problems: list[str], most: int = 5) -> list[str]:
    """Some of many similar lines, and how many there are."""
    more = len(problems) - most
    return [*problems[:most], f"... and {more} more like these"] if more > 0 else problems
