"""What flight recorders, NCCL RAS and stragglers are judged by, and their judging: the same when
they are asked and when a recorded answer is judged anew."""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Mapping
from typing import Annotated

import msgspec

from ray_sentinel.actors.coordinator.event_log.evidence_files import LARGE, kept, too_large
from ray_sentinel.capture.ras_process import explain_in_process
from ray_sentinel.engine.actions import AskArrivals, AskRecorder
from ray_sentinel.engine.events import (
    KeptEvidence,
    RasExplained,
    RecorderExplained,
    StragglersKept,
)
from ray_sentinel.errors import InputError
from ray_sentinel.evidence import stragglers
from ray_sentinel.evidence.flight_recorder.libraries import combine
from ray_sentinel.evidence.flight_recorder.reduced import is_readable, shared, weight
from ray_sentinel.masking import mask_record
from ray_sentinel.model.ras import RasFacts
from ray_sentinel.model.recorder import RecorderFacts
from ray_sentinel.model.straggler import StragglerFacts
from ray_sentinel.waitgraph.recorder import explain as explain_recorders
from ray_sentinel.waitgraph.recorder_failed import explain_failed

MOST_RANKS = 1 << 20
"""Most ranks of a job whose recorded dumps are judged: a number alone must not cost memory."""
MOST_POLLS = 128 << 20
"""Most bytes of answers of RAS that are unpacked."""
MOST_PACKED = 64 << 20
"""Most bytes of answers of RAS that are packed, which takes a second."""
MOST_SETS = 2
"""Most libraries with recorders in one job (``MOST_RECORDERS``)."""
MOST_ANSWERS = 1 << 16
"""Most answers of RAS in one look: however short they are, each costs memory and time."""
MOST_PROCESSES = 1 << 18
"""Most hosts and addresses of ranks in one look."""
RANK_BYTES = 200
"""Bytes that each rank of a job takes, also one of which there is no dump."""
MOST_SECONDS = 1e9
"""Most by which clocks may differ: larger numbers are damage."""
_UNREADABLE = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
_NEWER = "it has dumps in a form that this version cannot read"

_RankNumber = Annotated[int, msgspec.Meta(ge=0, le=MOST_RANKS)]
_Place = Annotated[int, msgspec.Meta(ge=0)]
_Offset = Annotated[float, msgspec.Meta(ge=-MOST_SECONDS, le=MOST_SECONDS)]


class _PackedDumps(msgspec.Struct):
    """``DumpEvidence`` in which equal dumps are written once."""

    dumps: list[bytes]
    sets: Annotated[list[dict[_RankNumber, _Place]], msgspec.Meta(max_length=MOST_SETS)]
    """For each library, the place in ``dumps`` of each rank's."""
    world_size: _RankNumber | None = None
    failed: bool = False
    overrun: tuple[_RankNumber, ...] = ()


class DumpEvidence(msgspec.Struct, frozen=True, kw_only=True):
    """The recorders of one look at a job's ranks."""

    sets: tuple[Mapping[int, bytes], ...]
    """Reduced dumps by rank; a set for each library, the main one first. At least one."""
    world_size: int | None = None
    failed: bool = False
    """The same as in ``AskRecorder``, as ``overrun``."""
    overrun: tuple[int, ...] = ()

    @classmethod
    def of(cls, action: AskRecorder, sets: Mapping[int, Mapping[int, bytes]]) -> DumpEvidence:
        """``sets`` are those that answered the action."""
        size = max((rank.world_size or 0 for rank in action.ranks), default=0)
        return cls(
            sets=tuple(sets.values()),
            world_size=size or None,
            failed=action.failed,
            overrun=action.overrun,
        )

    @classmethod
    def unpacked(cls, data: bytes) -> DumpEvidence:
        """What ``packed`` packed. Raises InputError."""
        try:
            packed = msgspec.msgpack.decode(data, type=_PackedDumps)
            sets = tuple(
                {rank: packed.dumps[place] for rank, place in one.items()} for one in packed.sets
            )
        except (*_UNREADABLE, IndexError) as error:
            raise InputError(f"it cannot be read: {error}") from None
        if not sets:
            raise InputError("it is empty")
        if not all(map(is_readable, packed.dumps)):
            raise InputError(_NEWER)
        return cls(
            sets=sets,
            world_size=packed.world_size,
            failed=packed.failed,
            overrun=packed.overrun,
        )

    def packed(self) -> bytes:
        """As bytes: the dumps are compressed already."""
        places: dict[bytes, int] = {}
        sets = [
            {rank: places.setdefault(data, len(places)) for rank, data in one.items()}
            for one in self.sets
        ]
        return msgspec.msgpack.encode(
            _PackedDumps(
                dumps=list(places),
                sets=sets,
                world_size=self.world_size,
                failed=self.failed,
                overrun=self.overrun,
            )
        )

    @property
    def size(self) -> int:
        """Bytes of all dumps, equal ones counted once."""
        return _size(data for one in self.sets for data in one.values())

    @classmethod
    def weight(cls, data: bytes, most: int) -> int:
        """Bytes of memory that judging what ``packed`` packed asks for, without objects; they are
        not counted on above ``most``. Raises InputError."""
        evidence = cls.unpacked(data)
        last = (max(one, default=0) for one in evidence.sets)
        ranks = max(evidence.world_size or 0, *evidence.overrun, *last)
        return sum((_weight(one, most) for one in evidence.sets), RANK_BYTES * ranks)

    def kept(self) -> KeptEvidence:
        """How it is kept with its verdict. Packing takes as much memory again as the dumps."""
        return kept(self.packed()) if self.size <= LARGE else too_large(self.size)

    def explain(self) -> RecorderFacts:
        """The verdict of this version."""
        found = [self._explain(dumps) for dumps in self.sets]
        return combine(found) if len(found) > 1 else found[0]

    def _explain(self, dumps: Mapping[int, bytes]) -> RecorderFacts:
        dumps = shared(dumps)
        if not self.failed:
            return explain_recorders(dumps, world_size=self.world_size)
        return explain_failed(dumps, overrun=self.overrun, world_size=self.world_size)


class PollEvidence(msgspec.Struct, frozen=True, kw_only=True):
    """Answers of NCCL RAS for a case."""

    polls: Annotated[tuple[bytes, ...], msgspec.Meta(max_length=MOST_ANSWERS)]
    """As the services gave them, the first ones of the case first."""
    ranks: Annotated[tuple[tuple[str, int, int], ...], msgspec.Meta(max_length=MOST_PROCESSES)] = ()
    """Host or address, process id, and world rank."""

    @classmethod
    def unpacked(cls, data: bytes) -> PollEvidence:
        """What ``packed`` packed. Raises InputError."""
        unpacker = zlib.decompressobj()
        try:
            packed = unpacker.decompress(data, MOST_POLLS)
            if not unpacker.eof:
                raise InputError("it is torn, or too large to be unpacked")
            return msgspec.msgpack.decode(packed, type=PollEvidence)
        except (*_UNREADABLE, zlib.error) as error:
            raise InputError(f"it cannot be read: {error}") from None

    def packed(self) -> bytes:
        """As bytes, compressed."""
        return zlib.compress(msgspec.msgpack.encode(self), 1)

    @property
    def size(self) -> int:
        """Bytes of all polls."""
        return sum(map(len, self.polls))

    @classmethod
    def weight(cls, data: bytes, most: int) -> int:
        """Bytes that ``data`` unpacks to, as for ``DumpEvidence``."""
        try:
            return len(zlib.decompressobj().decompress(data, most + 1))
        except zlib.error as error:
            raise InputError(f"it cannot be read: {error}") from None

    def kept(self) -> KeptEvidence:
        """How it is kept with its verdict."""
        return kept(self.packed()) if self.size <= MOST_PACKED else too_large(self.size)

    def explain(self) -> RasFacts:
        """The verdict of this version. Raises InputError if that takes too long or too much
        memory."""
        files = {f"poll {number}": data for number, data in enumerate(self.polls, 1)}
        ranks = {(host, pid): rank for host, pid, rank in self.ranks}
        return explain_in_process(files, ranks=ranks)


class _PackedLook(msgspec.Struct):
    """``ArrivalEvidence`` in which equal dumps are written once."""

    dumps: list[bytes]
    places: dict[_RankNumber, _Place]
    """The place in ``dumps`` of each rank's."""
    hosts: dict[_RankNumber, str] = {}
    offsets: dict[_RankNumber, _Offset] = {}


class ArrivalEvidence(msgspec.Struct, frozen=True, kw_only=True):
    """The recorders of one look at the stragglers of a job."""

    dumps: Mapping[int, bytes]
    """Whole reduced dumps by rank."""
    hosts: Mapping[int, str]
    """The host of each rank."""
    offsets: Mapping[int, float]
    """The same as in ``AskArrivals``."""

    @classmethod
    def of(cls, action: AskArrivals, dumps: Mapping[int, bytes]) -> ArrivalEvidence:
        """``dumps`` are those that answered the action."""
        hosts = {rank.id.rank: rank.process.host for rank in action.ranks}
        return cls(dumps=dumps, hosts=hosts, offsets=action.offsets)

    @classmethod
    def unpacked(cls, data: bytes) -> ArrivalEvidence:
        """What ``packed`` packed. Raises InputError."""
        try:
            packed = msgspec.msgpack.decode(data, type=_PackedLook)
            dumps = {rank: packed.dumps[place] for rank, place in packed.places.items()}
        except (*_UNREADABLE, IndexError) as error:
            raise InputError(f"it cannot be read: {error}") from None
        if not all(map(is_readable, packed.dumps)):
            raise InputError(_NEWER)
        return cls(dumps=dumps, hosts=packed.hosts, offsets=packed.offsets)

    def packed(self) -> bytes:
        """As bytes: the dumps are compressed already."""
        places: dict[bytes, int] = {}
        by_rank = {rank: places.setdefault(data, len(places)) for rank, data in self.dumps.items()}
        look = _PackedLook(list(places), by_rank, dict(self.hosts), dict(self.offsets))
        return msgspec.msgpack.encode(look)

    @property
    def size(self) -> int:
        """Bytes of all dumps, equal ones counted once."""
        return _size(self.dumps.values())

    @classmethod
    def weight(cls, data: bytes, most: int) -> int:
        """Bytes of memory that judging asks for, as for ``DumpEvidence``. Raises InputError."""
        evidence = cls.unpacked(data)
        ranks = len(evidence.dumps) + len(evidence.hosts) + len(evidence.offsets)
        return _weight(evidence.dumps, most) + RANK_BYTES * ranks

    def kept(self) -> KeptEvidence:
        """How it is kept. Packing takes as much memory again as the dumps."""
        return kept(self.packed()) if self.size <= LARGE else too_large(self.size)

    def explain(self) -> StragglerFacts:
        """The verdict of this version."""
        return stragglers.explain(self.dumps, hosts=self.hosts, offsets=self.offsets)


def _size(dumps: Iterable[bytes]) -> int:
    return sum(map(len, set(dumps)))


def _weight(dumps: Mapping[int, bytes], most: int) -> int:
    """Counted for each rank, also of equal dumps: judging goes through the operations of each."""
    total, known = 0, dict[bytes, int]()
    for data in dumps.values():
        if total <= most:
            total += known[data] if data in known else known.setdefault(data, weight(data, most))
    return total


Explained = RecorderExplained | RasExplained
Facts = RecorderFacts | RasFacts | StragglerFacts
Evidence = DumpEvidence | PollEvidence | ArrivalEvidence

EVIDENCE: dict[str, type[Evidence]] = {
    "recorder": DumpEvidence,
    "ras": PollEvidence,
    "stragglers_kept": ArrivalEvidence,
}
"""What the events with evidence were judged by, by their tag."""
FACTS: dict[str, type[Facts]] = {
    "recorder": RecorderFacts,
    "ras": RasFacts,
    "stragglers_kept": StragglerFacts,
}
"""The verdict that is made of it, likewise."""


def tag_of(event: Explained | StragglersKept) -> str:
    """The key of an event's kind in ``EVIDENCE``."""
    return str(type(event).__struct_config__.tag)


def with_verdict(event: Explained, facts: Facts) -> Explained:
    """A recorded answer with the verdict ``facts``."""
    if isinstance(facts, RasFacts) and not facts.polls:
        return mask_record(msgspec.structs.replace(event, facts=None))
    return mask_record(msgspec.structs.replace(event, facts=facts))
