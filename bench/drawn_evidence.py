"""Jobs with a known culprit, and what is left of their evidence after what real life does to it.

Each source draws a job, a fault and a harm to the evidence, all from one number, and returns what
is said of it: ``SOURCES[name](number)``. Harms are ranks without a dump or a stack, the culprit
among them; files that are cut, or hold nothing; one look alone; clocks that are wrong; native
stacks of some ranks and Python's alone of others; ranks whose wait no frame shows.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Callable, Collection, Iterator, Mapping
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from drawn_stories import engine_actors, engine_ranks, logs_made
from samples_of_verdicts import Sample
from stacks_of_jobs import NOBODYS, looks_at

from ray_sentinel.engine.incidents.evidence_case import FolderEvidence, judged
from ray_sentinel.model.ras import RasFacts
from ray_sentinel.model.recorder import RecorderFacts
from ray_sentinel.waitgraph import ras, recorder, stacks
from ray_sentinel.waitgraph.confidence import (
    by_tool,
    of_tool,
    put_on_culprit,
    weakest,
)
from tests.support.ras_sim.faults import PERSISTENT
from tests.support.ras_sim.job import Job as RasJob
from tests.support.ras_sim.render import as_json, as_text
from tests.support.recorder_fleet import cases as fleet
from tests.support.recorder_fleet.clock import Clockwork
from tests.support.recorder_fleet.write import HANDS, dumps
from tests.support.recorder_sim.dumps import FORMATS, write
from tests.support.recorder_sim.faults import FAULTS, simulate
from tests.support.recorder_sim.program import LAYOUTS

EPOCH = 1.7e9
"""Unix time at which drawn jobs begin, in their recorders."""
RANK_CLOCK = 40.0
"""Seconds by which the clock of each rank of a drawn job is ahead of the one before."""


# Flight recorders.

RECORDER_HARMS = (
    "none",
    "none",
    "a rank missing",
    "some missing",
    "culprit missing",
    "a dump cut",
    "culprit's cut",
    "all cut",
    "unreadable",
)


def harmed(
    given: Mapping[int, bytes], culprits: Collection[int], rng: random.Random
) -> tuple[dict[int, bytes], str]:
    """The dumps that are left, and what was done to them."""
    left, harm = dict(given), rng.choice(RECORDER_HARMS)
    who = rng.choice(sorted(culprits)) if culprits and "culprit" in harm else rng.choice([*left])
    if harm == "some missing":
        for rank in rng.sample(sorted(left), max(1, len(left) // 4)):
            del left[rank]
    elif harm.endswith("missing"):
        del left[who]
    elif harm == "all cut":
        left = {rank: _cut(data, rng) for rank, data in left.items()}
    elif harm.endswith("cut"):
        left[who] = _cut(left[who], rng)
    elif harm == "unreadable":
        left[who] = rng.choice((b"", b"\x00" * 400, rng.randbytes(400)))
    return left, harm


def _cut(data: bytes, rng: random.Random) -> bytes:
    return data[: int(len(data) * rng.uniform(0.2, 0.98))]


def _of_recorders(facts: RecorderFacts) -> dict[str, Any]:
    return {
        "named": tuple(sorted(str(one.rank) for one in facts.culprits)),
        "kind": facts.kind,
        "confidence": of_tool(facts),
        "witnesses": dict(weakest(told)) if (told := by_tool(facts)) else {},
    }


def recorder_listed(number: int) -> Sample:
    """Dumps of jobs whose layouts are listed."""
    rng = random.Random(f"recorder-listed/{number}")
    layout, fault = rng.choice([*LAYOUTS]), rng.choice(FAULTS)
    case = simulate(layout, fault, rng.randrange(1 << 30))
    left, harm = harmed(write(case.machine, FORMATS[rng.choice([*FORMATS])]), case.culprits, rng)
    world = case.machine.job.world if rng.random() < 0.5 else None
    facts = recorder.explain(left, world_size=world)
    return Sample(
        source="recorder: listed",
        case=fault,
        harm=harm,
        truth=tuple(sorted(map(str, case.culprits))),
        **_of_recorders(facts),
    )


def _recorded(case: fleet.Case, rng: random.Random) -> tuple[RecorderFacts, str]:
    """What the recorders of a drawn job say, once or twice looked at."""
    job, hand = case.job, HANDS[rng.choice([*HANDS])]
    moving = case.fault == "healthy" or rng.random() < 0.05
    at = rng.uniform(0.2, 1.0) * job.last if moving else job.last + rng.choice((1.0, 20.0))
    skew = rng.choice((0.0, 0.0, 0.05))
    left, harm = harmed(dumps(job, hand, at, skew), case.culprits, rng)
    told: dict[str, Any] = {}
    if rng.random() < 0.5:
        told["world_size"] = job.shape.world
    if rng.random() < 0.4:
        told["earlier"] = dumps(job, hand, at - 0.7, skew)
    elif rng.random() < 0.5:
        # Files from nodes whose clock is right, and from those whose clock is not the dump's.
        clock = RANK_CLOCK if rng.random() < 0.7 else 0.0
        told["written"] = {r: EPOCH + at + skew * r + clock * r for r in left}
    looks = "two looks" if "earlier" in told else "one look"
    moment = ", moving" if moving else ""
    return recorder.explain(left, **told), f"{harm}, {looks}{moment}"


def recorder_drawn(number: int) -> Sample:
    """Dumps of jobs drawn at random, at a moment."""
    rng = random.Random(f"recorder-drawn/{number}")
    case = fleet.make(rng.choice(fleet.FAULTS), rng.randrange(1 << 30))
    facts, harm = _recorded(case, rng)
    return Sample(
        source="recorder: drawn",
        case=case.fault,
        harm=harm,
        truth=tuple(sorted(map(str, case.culprits))),
        **_of_recorders(facts),
    )


# Stacks, and both together.


def _waiting_in_calls(case: fleet.Case, rng: random.Random) -> fleet.Case:
    """The same job, in half of the cases with hosts that wait in each call, as with gloo."""
    if rng.random() < 0.5:
        return case
    faults, seed = [*case.job.faults.values()], rng.randrange(1 << 30)
    job = Clockwork(case.job.shape, faults, seed, depth=1)
    culprits = frozenset(job.hit) if case.culprits or case.fault not in NOBODYS else frozenset()
    return fleet.Case(job, case.axes, case.fault, culprits)


def _stack_job(rng: random.Random) -> fleet.Case:
    """A job whose stacks are looked at because nothing moves: it hangs."""
    faults = [fault for fault in fleet.FAULTS if fault != "healthy"]
    return _waiting_in_calls(fleet.make(rng.choice(faults), rng.randrange(1 << 30)), rng)


def stacks_made(number: int) -> Sample:
    """Texts of py-spy of drawn jobs."""
    rng = random.Random(f"stacks-made/{number}")
    case = _stack_job(rng)
    rounds, harm = looks_at(case, rng)
    found = stacks.explain(rounds)
    named = sorted(str(fact.rank.rank) for facts in rounds[-1:] for fact in facts
                   if fact.rank and fact.process in found.processes)  # fmt: skip
    return Sample(
        source="stacks: made",
        case=case.fault,
        harm=harm,
        named=tuple(named),
        truth=tuple(sorted(map(str, case.culprits))),
        kind=found.kind,
        confidence=found.confidence,
        witnesses=dict(found.testimony),
    )


def _weighed(
    source: str, case: str, harm: str, truth: Collection[int], evidence: FolderEvidence
) -> Sample:
    """What the live judge says of a folder of this evidence."""
    verdict = judged(evidence).verdict
    return Sample(
        source=source,
        case=case,
        harm=harm,
        named=tuple(sorted(str(one.rank) for one in verdict.culprits)),
        truth=tuple(sorted(map(str, truth))),
        kind=verdict.kind,
        confidence=verdict.confidence,
        witnesses=dict(put_on_culprit(verdict)),
    )


def weighed_stacks(number: int) -> Sample:
    """Stacks of ranks, weighed by the live judge."""
    rng = random.Random(f"weighed-stacks/{number}")
    case = _stack_job(rng)
    rounds, harm = looks_at(case, rng)
    evidence = FolderEvidence(rounds=rounds)
    return _weighed("weighed: stacks", case.fault, harm, case.culprits, evidence)


def weighed_recorder(number: int) -> Sample:
    """Recorders alone, weighed by the live judge."""
    rng = random.Random(f"weighed-recorder/{number}")
    case = fleet.make(rng.choice(fleet.FAULTS), rng.randrange(1 << 30))
    facts, harm = _recorded(case, rng)
    evidence = FolderEvidence(recorder=facts)
    return _weighed("weighed: recorder", case.fault, harm, case.culprits, evidence)


def weighed_both(number: int) -> Sample:
    """Recorders and stacks of one job, weighed by the live judge."""
    rng = random.Random(f"weighed-both/{number}")
    case = _stack_job(rng)
    rounds, seen = looks_at(case, rng)
    facts, kept = _recorded(case, rng)
    evidence = FolderEvidence(rounds=rounds, recorder=facts)
    harm = f"stacks: {seen}; dumps: {kept}"
    return _weighed("weighed: both", case.fault, harm, case.culprits, evidence)


# NCCL RAS.

RAS_LAYOUTS = ((2, 4, "dp"), (4, 8, "dp"), (2, 4, "tp"), (4, 8, "tp"), (1, 8, "dp"), (1, 2, "dp"))


def _polled(rng: random.Random) -> tuple[RasJob, str, set[int], RasFacts, str]:
    fault = rng.choice((*PERSISTENT, "moving"))
    nodes, per_node, layout = rng.choice(RAS_LAYOUTS)
    if fault == "chain":
        nodes, layout = max(nodes, 2), "tp"
    elif fault == "half gone":
        per_node = max(per_node, 4)  # of two, it would be both
    job = RasJob(rng.randrange(1 << 30), nodes, per_node, layout)
    job.run(rng.randrange(20, 200))
    truth = _break(job, fault, rng)
    second = rng.choice(("dead", "behind", "mute")) if rng.random() < 0.15 else ""
    if second and fault not in ("moving", "stall"):
        truth |= _break(job, second, rng)
        fault += f" and {second}"
    render = rng.choice((as_json, as_text))
    polls = {"1": render(job).encode()}
    again = rng.random() < 0.5
    if again:
        job.wait(10)
        if fault == "moving":
            job.run(3)
            _break(job, fault, rng)
        polls["2"] = render(job).encode()
    harm = "two polls" if again else "one poll"
    if rng.random() < 0.3:
        which = rng.choice([*polls])
        polls[which] = _cut(polls[which], rng)
        harm += f", {'last' if which == [*polls][-1] else 'first'} cut"
    return job, fault, truth, ras.explain(polls, ranks=job.ranks), harm


def _break(job: RasJob, fault: str, rng: random.Random) -> set[int]:
    """Put a fault into a job; returns whom one must name."""
    if fault == "moving":
        late = tuple(rng.sample(range(len(job.peers)), rng.randrange(1, len(job.peers))))
        job.world.launch("AllReduce", 1, but=late)
        return set()
    return set(PERSISTENT[fault](job, rng.randrange(len(job.peers))).culprits)


def ras_made(number: int) -> Sample:
    """Answers of RAS, polled once or twice."""
    _, fault, truth, facts, harm = _polled(random.Random(f"ras-made/{number}"))
    return Sample(
        source="RAS",
        case=fault,
        harm=harm,
        named=tuple(sorted(str(one.rank) for one in facts.culprits)),
        truth=tuple(sorted(map(str, truth))),
        kind=facts.kind,
        confidence=of_tool(facts),
        witnesses=dict(weakest(told)) if (told := by_tool(facts)) else {},
    )


def weighed_ras(number: int) -> Sample:
    """The same, weighed by the live judge."""
    _, fault, truth, facts, harm = _polled(random.Random(f"weighed-ras/{number}"))
    return _weighed("weighed: RAS", fault, harm, truth, FolderEvidence(ras=facts))


SOURCES: dict[str, Callable[[int], Sample | Iterator[Sample]]] = {
    "recorder-listed": recorder_listed,
    "recorder-drawn": recorder_drawn,
    "stacks": stacks_made,
    "ras": ras_made,
    "weighed-recorder": weighed_recorder,
    "weighed-stacks": weighed_stacks,
    "weighed-both": weighed_both,
    "weighed-ras": weighed_ras,
    "engine-ranks": engine_ranks,
    "engine-actors": engine_actors,
    "logs": logs_made,
}


def drawn(source: str, number: int) -> list[Sample]:
    """The samples of one number."""
    found = SOURCES[source](number)
    return [found] if isinstance(found, Sample) else list(found)
