"""All that the engine knows, and its snapshot: the same data in MessagePack.

A snapshot of another version is read as far as possible: unknown fields are ignored, and missing
ones have their defaults. If it cannot be read at all, only its incidents are taken; everything else
is learned again.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import AbstractContextManager
from typing import Any, cast

import msgspec

from ray_sentinel.config import Config
from ray_sentinel.engine.actions import AnyAction, AskRecorder, Capture, TakeStacks
from ray_sentinel.engine.cluster import ClusterView
from ray_sentinel.engine.copying import copier
from ray_sentinel.engine.events import AnyEvent, CaptureDone, RecorderExplained, StacksTaken
from ray_sentinel.engine.incidents.store import IncidentStore
from ray_sentinel.engine.jobs import JobView
from ray_sentinel.engine.rule import Rule
from ray_sentinel.engine.state_cut import StateCut
from ray_sentinel.engine.straggling import StragglerWatch
from ray_sentinel.engine.telemetry.alerting import AlertBook
from ray_sentinel.engine.telemetry.series import NodeTelemetry, Telemetry
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
    sampled: dict[tuple[str, int], float] = {}
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
        return _of_incidents(self.now, self.store.incidents, self.store.number)

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

        def whole(nodes: Mapping[str, msgspec.Raw]) -> bytes:
            known.cluster.telemetry.nodes = cast("dict[str, NodeTelemetry]", nodes)
            return _encoder.encode(known)

        return StateCut(
            jobs=(*known.cluster.jobs.values(), *known.former_jobs),
            series=held,
            pack=_encoder.encode,
            whole=whole,
            incidents=lambda: _packed_incidents(
                known.now, known.store.incidents, known.store.number
            ),
            most_bytes=most_bytes,
            lock=lock,
        )

    def _former(self) -> list[JobView]:
        """Jobs that are over, or replaced, and whose cases are still open."""
        there = {job.number for job in self.cluster.jobs.values()}
        jobs = {case.job_number: case.job for case in self.store.cases.values()}
        return [job for number, job in jobs.items() if number not in there]


class _Incidents(msgspec.Struct, kw_only=True):
    """A snapshot of only what every version understands."""

    version: int = 0
    now: float = 0.0
    store: _Known = msgspec.field(default_factory=lambda: _Known())


class _Known(msgspec.Struct, kw_only=True):
    incidents: dict[str, Incident] = {}
    number: int = 0


def _packed_incidents(now: float, incidents: dict[str, Incident], number: int) -> bytes:
    return _encoder.encode(_Incidents(now=now, store=_Known(incidents=incidents, number=number)))


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
    return _of_incidents(known.now, known.store.incidents, known.store.number), problem


def incidents_in(snapshot: bytes) -> dict[str, Incident]:
    """The incidents of a snapshot, suspicions too, by id. Raises ValueError if they cannot be
    read."""
    return _incidents.decode(snapshot).store.incidents


def _of_incidents(now: float, incidents: Mapping[str, Incident], number: int) -> EngineState:
    state = EngineState(now=now)
    state.store.take_over(incidents.values(), now)
    state.store.skip(number)
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


def _packed_floats(value: Any) -> bytes:
    if isinstance(value, Floats):
        return value.packed()
    raise NotImplementedError


def _unpacked_floats(kind: type, value: Any) -> Any:
    if kind is Floats:
        # Earlier versions had some of them as lists.
        return Floats(value) if isinstance(value, list) else Floats.unpacked(value)
    raise NotImplementedError


_encoder = msgspec.msgpack.Encoder(enc_hook=_packed_floats)
_decoder = msgspec.msgpack.Decoder(EngineState, dec_hook=_unpacked_floats)
_incidents = msgspec.msgpack.Decoder(_Incidents)
_copied = copier(EngineState)
