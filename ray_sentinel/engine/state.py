"""All that the engine knows, and its snapshot: the same data in MessagePack.

A snapshot of another version is read as far as possible: unknown fields are ignored, and missing
ones have their defaults. If it cannot be read at all, only its incidents are taken; everything else
is learned again.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Mapping
from contextlib import AbstractContextManager
from typing import Any, cast

import msgspec

from ray_sentinel.config import Config
from ray_sentinel.engine.actions import AnyAction, AskRecorder, Capture, TakeStacks
from ray_sentinel.engine.cluster import ClusterView
from ray_sentinel.engine.copying import copier
from ray_sentinel.engine.events import AnyEvent, CaptureDone, RecorderExplained, StacksTaken
from ray_sentinel.engine.incidents.store import IncidentStore
from ray_sentinel.engine.jobs import JobKey, JobView
from ray_sentinel.engine.rule import Rule
from ray_sentinel.engine.straggling import StragglerWatch
from ray_sentinel.engine.telemetry.alerting import AlertBook
from ray_sentinel.engine.telemetry.sample_columns import Column, SampleColumns
from ray_sentinel.engine.telemetry.series import NO_SNAPSHOT, HeldNode, NodeTelemetry, Telemetry
from ray_sentinel.model.incident import Incident
from ray_sentinel.model.samples import Floats

STATE_VERSION = 1
"""Version of the meaning of the fields; raised where one of them comes to mean something else."""

Question = tuple[str, str, int]
"""What was requested, the incident, and the number of the round of stacks."""


class EngineState(msgspec.Struct, kw_only=True):
    """Times are on the coordinator's steady clock."""

    version: int = STATE_VERSION
    now: float = 0.0
    """The time of the last event."""
    cluster: ClusterView = msgspec.field(default_factory=ClusterView)
    store: IncidentStore = msgspec.field(default_factory=IncidentStore)
    alerts: AlertBook = msgspec.field(default_factory=AlertBook)
    stragglers: StragglerWatch = msgspec.field(default_factory=StragglerWatch)
    sampled: dict[JobKey, float] = {}
    """When each job's stacks were last requested without a case."""
    unanswered: dict[Question, AnyAction] = {}
    """Requests that have not been answered yet."""
    held_until: float = 0.0
    """After a restart: only events are taken in until this time, or until a tick; 0 where nothing
    waits for agents to come back."""
    shed: dict[str, int] = {}
    """How often each part of it had to drop something because memory was short."""
    former_jobs: list[JobView] = []
    """In a snapshot: jobs that are over, or replaced, and whose cases are still open."""

    def bind(self, config: Config, rules: Iterable[Rule]) -> None:
        """Give all parts the settings, the rules, and each other."""
        self.cluster.bind(config)
        self.alerts.bind(rules)
        self.stragglers.bind(config.stragglers)
        jobs = {job.number: job for job in self.cluster.jobs.values()}
        jobs |= {job.number: self.cluster.bind_job(job) for job in self.former_jobs}
        self.store.bind(jobs, self.now)
        self.former_jobs = []

    def of_incidents(self) -> EngineState:
        """A state that has only these incidents."""
        return _of_incidents(self)

    def packed(self) -> bytes:
        """The snapshot. Raises the exceptions in ``NO_SNAPSHOT``."""
        return _encoder.encode(msgspec.structs.replace(self, former_jobs=self._former()))

    def cut(self, most_bytes: int, lock: AbstractContextManager[object]) -> StateCut:
        """The snapshot of this moment, to be packed while the engine continues. ``lock`` is the one
        that whoever changes the state holds; it is not taken before packing begins."""
        series = self.cluster.telemetry
        # They are not packed only to learn that they are too large: those of a thousand nodes take
        # a gigabyte.
        held = series.hold(_encoder.encode) if series.size <= most_bytes else None
        cluster = msgspec.structs.replace(
            self.cluster, telemetry=Telemetry(bounded_at=series.bounded_at, cut=series.cut)
        )
        former = self._former()
        known = _copied(msgspec.structs.replace(self, cluster=cluster, former_jobs=former))
        return StateCut(known, held, most_bytes, lock)

    def _former(self) -> list[JobView]:
        """Jobs that are over, or replaced, and whose cases are still open."""
        there = {job.number for job in self.cluster.jobs.values()}
        jobs = {case.job_number: case.job for case in self.store.cases.values()}
        return [job for number, job in jobs.items() if number not in there]


# The engine's state at one moment, packed while the engine continues.
#
# Packing everything that is known about 8,192 ranks takes most of a second, and no event may wait
# for that. So mutable records are copied at that moment, while the immutable ones that make up
# nearly all of them are shared with the copy. The series of nodes are too many to copy: whoever
# wants to change a node's series first packs that node's, or the cut packs it when it gets there.
# Packing proceeds in small steps, so that other threads get their turns.

Packing = Generator[None, None, bytes]
"""A generator that packs in steps, and returns the packed bytes; these are empty if they would be
too large."""


class StateCut:
    """A snapshot that is still to be packed, once, on any thread."""

    def __init__(
        self,
        known: EngineState,
        series: Mapping[str, HeldNode] | None,
        most_bytes: int,
        lock: AbstractContextManager[object],
    ) -> None:
        """``known`` is a copy that belongs to the cut, without series. ``series`` is None if they
        are known to be too large. ``lock`` keeps the engine from changing them."""
        self.lost = ""
        """What had to be left out, and why."""
        self._known, self._series = known, series
        self._most, self._lock = most_bytes, lock

    def packed(self) -> bytes:
        """The snapshot, or as much of it as can be packed and is not too large; empty if nothing
        is."""
        steps = self.steps()
        while True:
            try:
                next(steps)
            except StopIteration as end:
                return cast("bytes", end.value)

    def steps(self) -> Packing:
        """Pack the snapshot step by step. Each step takes about a millisecond, except the last."""
        for what, packing in (
            ("the nodes' metrics of the last minutes", self._with_series),
            ("what was learned of the jobs", self._without_series),
            ("what is known of the incidents", self._of_incidents),
        ):
            why = f"more than {self._most >> 20} MiB"
            try:
                state = yield from packing()
            except NO_SNAPSHOT as error:  # a number or a text that came from a rank
                why = str(error)
            else:
                if 0 < len(state) <= self._most:
                    return state
            self.lost = f"{what} will not outlive a restart of the coordinator: {why}"
        return b""

    def _with_series(self) -> Packing:
        if self._series is None or (size := (yield from self._ranks())) > self._most:
            return b""
        least = size
        for held in self._series.values():
            with self._lock:
                least += held.least_bytes
            # Checked before any is packed, because what would be dropped then takes all of the
            # room.
            if least > self._most:
                return b""
            yield
        nodes: dict[str, msgspec.Raw] = {}
        for node_id, held in self._series.items():
            with self._lock:
                nodes[node_id] = msgspec.Raw(held.packed())
            size += len(nodes[node_id])
            if size > self._most:
                return b""
            yield
        return self._whole(nodes)

    def _whole(self, nodes: Mapping[str, msgspec.Raw]) -> bytes:
        """All of it, with series that are packed already."""
        self._known.cluster.telemetry.nodes = cast("dict[str, NodeTelemetry]", nodes)
        return _encoder.encode(self._known)

    def _without_series(self) -> Packing:
        self._series = None  # nobody needs to keep them any more
        size = yield from self._ranks()
        return self._whole({}) if size <= self._most else b""

    def _of_incidents(self) -> Packing:
        yield
        store = self._known.store
        told = _Known(incidents=store.incidents, number=store.number)
        return _encoder.encode(_Incidents(now=self._known.now, store=told))

    def _ranks(self) -> Generator[None, None, int]:
        """Pack each rank in its place. Returns their bytes, or only some if they are too many."""
        size = 0
        for job in (*self._known.cluster.jobs.values(), *self._known.former_jobs):
            ranks = cast("dict[object, object]", job.ranks)
            for key, rank in ranks.items():
                if not isinstance(rank, msgspec.Raw):
                    ranks[key] = rank = msgspec.Raw(_encoder.encode(rank))
                    yield
                size += len(rank)
                if size > self._most:
                    return size
        return size


class _Incidents(msgspec.Struct, kw_only=True):
    """A snapshot of only what every version understands."""

    version: int = 0
    now: float = 0.0
    store: _Known = msgspec.field(default_factory=lambda: _Known())


class _Known(msgspec.Struct, kw_only=True):
    incidents: dict[str, Incident] = {}
    number: int = 0


def unpacked(snapshot: bytes) -> tuple[EngineState, str]:
    """The state in a snapshot, and a sentence about what could not be read ("" if all could).

    Raises ValueError if not even the incidents can be read.
    """
    problem = ""
    try:
        if (version := _incidents.decode(snapshot).version) == STATE_VERSION:
            return _decoder.decode(snapshot), ""
        problem = f"it is of version {version}, not {STATE_VERSION}"
    except msgspec.DecodeError as error:
        problem = str(error)
    known = _incidents.decode(snapshot)
    return _of_incidents(known), problem


def incidents_in(snapshot: bytes) -> dict[str, Incident]:
    """The incidents of a snapshot, suspicions too, by id. Raises ValueError if they cannot be
    read."""
    return _incidents.decode(snapshot).store.incidents


def _of_incidents(known: EngineState | _Incidents) -> EngineState:
    state = EngineState(now=known.now)
    state.store.take_over(known.store.incidents.values(), known.now)
    state.store.skip(known.store.number)
    return state


def asks(action: AnyAction) -> Question | None:
    """The request in an action that must eventually be answered."""
    match action:
        case TakeStacks(incident=incident, round=number) if incident:
            return ("stacks", incident, number)
        case AskRecorder(incident=incident):
            return ("recorder", incident, 0)
        case Capture(incident=incident):
            return ("capture", incident.id, 0)
    return None


def answers(event: AnyEvent) -> Question | None:
    """The request that an event answers."""
    match event:
        case StacksTaken(incident=incident, round=number, asked_at=None):
            return ("stacks", incident, number)
        case RecorderExplained(incident=incident):
            return ("recorder", incident, 0)
        case CaptureDone(incident=incident):
            return ("capture", incident, 0)
    return None


def _packed(value: Any) -> Any:
    if isinstance(value, Floats | SampleColumns):
        return value.packed()
    raise NotImplementedError


def _unpacked(kind: type, value: Any) -> Any:
    if kind is SampleColumns:
        return SampleColumns.unpacked(msgspec.convert(value, list[Column]))
    if kind is Floats:
        return Floats.unpacked(value)
    raise NotImplementedError


_encoder = msgspec.msgpack.Encoder(enc_hook=_packed)
_decoder = msgspec.msgpack.Decoder(EngineState, dec_hook=_unpacked)
_incidents = msgspec.msgpack.Decoder(_Incidents)
_copied = copier(EngineState)
