"""Who hangs a job, from the bytes of its flight-recorder dumps."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Mapping

import msgspec

from ray_sentinel.errors import InputError
from ray_sentinel.evidence.flight_recorder.dump import RankDump
from ray_sentinel.evidence.flight_recorder.entry import Entry
from ray_sentinel.evidence.flight_recorder.motion import (
    dumped_too_soon,
    left_over,
    moved_since,
    moving,
    why_too_young,
)
from ray_sentinel.evidence.flight_recorder.reduced import history, read
from ray_sentinel.evidence.flight_recorder.signature_mismatch import mismatch_facts, unlike
from ray_sentinel.evidence.flight_recorder.waits import Operation, Waits
from ray_sentinel.evidence.flight_recorder.world import World
from ray_sentinel.evidence.minority import half, most_odd
from ray_sentinel.model.rank_names import name_ranks
from ray_sentinel.model.recorder import RecorderCulprit, RecorderFacts, RecorderKind, RecorderWait
from ray_sentinel.waitgraph.recorder_culprits import Findings, Reasoning


def explain(
    dumps: Mapping[int, bytes],
    *,
    names: Mapping[int, str] | None = None,
    world_size: int | None = None,
    earlier: Mapping[int, bytes] | None = None,
    written: Mapping[int, float] | None = None,
) -> RecorderFacts:
    """Who hangs the job, from each rank's flight-recorder dump (rank → pickle, JSON, or either
    in the form of ``reduced``).

    ``names`` are shown in problems ("dump 3" otherwise). ``world_size`` lets ranks without a dump
    beyond the last one be seen. ``earlier`` are dumps of the same ranks some seconds before: a rank
    that went on since is not stuck. ``written`` is when each dump was, in Unix seconds: without
    ``earlier``, nobody is accused of a wait that was then too young. The mappings are read rank by
    rank, some ranks twice, so they may load lazily. Never raises for what a dump holds: what is
    unreadable is in ``problems``.
    """
    now, problems = read_all(dumps, names or {})
    facts = reason(
        now,
        problems,
        world_size,
        lambda rank: history_of(dumps, rank),
        written=written if earlier is None else None,
    )
    if earlier is None:
        return facts
    before, _ = read_all(earlier, {})
    return _compare(facts, moved_since(before, now))


def read_all(
    dumps: Mapping[int, bytes], names: Mapping[int, str]
) -> tuple[dict[int, RankDump], list[str]]:
    """The dumps that can be read, by rank, and a line for each that cannot; see ``explain``."""
    problems: list[str] = []
    result: dict[int, RankDump] = {}
    for rank in sorted(dumps):
        name = names.get(rank, f"dump {rank}")
        try:
            result[rank] = read(rank, dumps[rank])
        except InputError as error:
            problems.append(f"{name} {error}")
            continue
        if result[rank].problem:
            problems.append(f"{name} {result[rank].problem}")
    return result, problems


def _compare(facts: RecorderFacts, moved: list[int]) -> RecorderFacts:
    """Weigh the explanation by who went on since the earlier dumps."""
    accused = {culprit.rank for culprit in facts.culprits}
    if not moved:
        line = "no rank has gone on since the earlier dumps"
        return msgspec.structs.replace(facts, evidence=(*facts.evidence, line))
    went_on = "have gone on" if len(moved) > 1 else "has gone on"
    line = f"{name_ranks(moved)} {went_on} since the earlier dumps"
    if accused and not accused & set(moved):
        return msgspec.structs.replace(facts, evidence=(*facts.evidence, line))
    return msgspec.structs.replace(
        facts, kind="running", culprits=(), strength=0.95, evidence=(line,)
    )


def history_of(dumps: Mapping[int, bytes], rank: int) -> list[Entry]:
    """Every operation in a rank's dump; empty if it cannot be read (any more)."""
    try:
        return history(dumps[rank])
    except InputError:
        # The file has gone since it was read: what was kept of it must suffice.
        return []


def reason(
    dumps: Mapping[int, RankDump],
    problems: Iterable[str] = (),
    world_size: int | None = None,
    history: Callable[[int], list[Entry]] | None = None,
    written: Mapping[int, float] | None = None,
) -> RecorderFacts:
    """The explanation from dumps that have already been read; ``history`` returns the whole history
    of a rank's dump."""
    world = World(dumps, world_size, history)
    waits = Waits(world)
    moved = moving(world)
    if moved and (old := left_over(world.dumps)):
        rest = {rank: dump for rank, dump in dumps.items() if rank not in old}
        told = [*problems, *map(_of_earlier_run, old.items())]
        # The files of an earlier run may be of more ranks than this one has.
        return reason(rest, told, None, history, written)
    if moved:
        # A failed call may look like a successful one, but then no two calls differ.
        if odd := unlike(world):
            return mismatch_facts(world, odd, list(problems))
        return RecorderFacts(
            kind="running",
            strength=0.8,
            evidence=(
                moved,
                "the dumps show the job at different moments: it was moving, or it had failed",
            ),
            problems=tuple(problems),
            ranks=tuple(world.dumps),
        )
    findings = Reasoning(waits).run()
    kind, remarks = _conclude(world, waits, findings, written or {})
    culprits = tuple(findings.culprits[rank] for rank in sorted(findings.culprits))
    evidence = [f"rank {c.rank} {c.reason}" for c in culprits] + remarks
    return RecorderFacts(
        kind=kind,
        culprits=culprits,
        waits=_told(waits, set(findings.culprits)),
        strength=round(_strength(world, findings, kind), 2),
        evidence=tuple(evidence),
        problems=tuple(problems),
        ranks=tuple(world.dumps),
    )


def _of_earlier_run(old: tuple[int, float]) -> str:
    rank, seconds = old
    return (
        f"dump of rank {rank}: its last call is {seconds / 60:.0f} min before those of the others, "
        "and contradicts them: an earlier run has left it, and it is not used"
    )


def _told(waits: Waits, culprits: Container[int]) -> tuple[RecorderWait, ...]:
    """For every rank that waits in an operation and is not a culprit: which operation, and for
    whom."""
    found = []
    told: dict[Operation, tuple[str, tuple[int, ...]]] = {}
    for rank, held in waits.fronts.items():
        if rank in culprits or not held:
            continue
        one = held[0]
        if one not in told:
            named = sorted({*(one.absent or one.elsewhere or one.silent or one.inside)})
            told[one] = waits.title(one), tuple(named[:_MOST_NAMED])
        text, whom = told[one]
        others = tuple(r for r in whom if r != rank) if rank in whom else whom
        found.append(RecorderWait(rank=rank, operation=text, waits_for=others))
    return tuple(found)


_MOST_NAMED = 256
"""Most ranks that are named of those that one rank waits for; the others are left out."""


def _is_informative(dump: RankDump) -> bool:
    """It holds an operation, or what its watchdog counted."""
    return bool(dump.pending or dump.last_done or dump.status) or dump.first_record is not None


def _conclude(
    world: World, waits: Waits, findings: Findings, written: Mapping[int, float]
) -> tuple[RecorderKind, list[str]]:
    """The overall kind, and what else must be mentioned. Drops accusations that do not hold."""
    if not world.dumps:
        return "cannot-tell", ["no dump could be read"]
    if not findings.culprits and not any(map(_is_informative, world.dumps.values())):
        return "cannot-tell", [
            "the dumps hold no operation at all: the recorders are off, or nothing was called yet"
        ]
    remarks = [*findings.remarks]
    if not any(waits.fronts.values()) and not findings.culprits:
        remarks.append(
            "no rank has an operation pending: the job waits for something outside, or runs"
        )
        return "waiting-outside", remarks
    if findings.culprits and any(dump.blind for dump in world.dumps.values()):
        findings.culprits.clear()
        remarks.append("dumps of a version before 2.0 do not show enough of transfers and groups")
        return "cannot-tell", remarks
    suspected = findings.culprits or findings.mismatch
    if suspected and (young := why_too_young(waits, written)):
        remarks.append(young)
        return _acquit_the_standing(world, findings), remarks
    standing = [c.rank for c in findings.culprits.values() if c.kind in _STANDING]
    soon = dumped_too_soon(world, standing, written)
    for rank, why in soon.items():
        del findings.culprits[rank]
        remarks.append(why)
    standing = [rank for rank in standing if rank not in soon]
    size = len(world.dumps)
    if len(standing) > min(half(size), max(_FEW, most_odd(size))):
        remarks.append(
            f"{name_ranks(standing)}: waited for, and waiting for nobody; so many at once are "
            "seldom stuck: they may wait for something outside, or the job was running"
        )
        return _acquit_the_standing(world, findings), remarks
    if standing and world.unrecorded_p2p:
        findings.strength = min(findings.strength, _BLIND)
        line = "gloo does not record sends and receives: who waits in one looks idle"
        remarks.append(line)
        if len(standing) > 1:
            remarks.append(f"so of {name_ranks(standing)}, any may be the one that is stuck")
            return _acquit_the_standing(world, findings), remarks
    if findings.culprits:
        first = max(findings.culprits.values(), key=lambda c: _WEIGHT.index(c.kind))
        return first.kind, remarks
    if findings.mismatch:
        return "collective-mismatch", remarks
    return "cannot-tell", remarks or ["ranks wait, and nothing in the dumps explains it"]


def _acquit_the_standing(world: World, findings: Findings) -> RecorderKind:
    """Drop all accusations except those of a call that differs from the peers' under the same
    number, or that came out of turn: that is wrong, whatever the others do."""
    odd = unlike(world)
    early = {
        rank: RecorderCulprit(rank=rank, kind="collective-mismatch", reason=reason)
        for rank, reason in findings.out_of_turn.items()
    }
    findings.culprits = early | {
        rank: culprit
        for rank, culprit in findings.culprits.items()
        if culprit.kind == "collective-mismatch" and rank in odd
    }
    return "collective-mismatch" if findings.culprits else "cannot-tell"


_FEW = 2
_BLIND = 0.6
_STANDING: tuple[RecorderKind, ...] = ("not-enqueued", "device-stuck")

_WEIGHT: tuple[RecorderKind, ...] = (
    "no-dump",
    "collective-mismatch",
    "not-enqueued",
    "device-stuck",
)


def _strength(world: World, findings: Findings, kind: RecorderKind) -> float:
    if not findings.culprits:
        return 0.7 if kind == "waiting-outside" else 0.3
    missing = len(world.groups.world) - len(world.dumps)
    strength = findings.strength
    if findings.unexplained:
        strength *= 0.8
    if missing and kind != "no-dump":
        strength *= 0.9
    return strength
