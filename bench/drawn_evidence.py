"""Jobs with a known culprit, and what is left of their evidence after what real life does to it.

Each source draws a job, a fault and a harm to the evidence, all from one number, and returns what
is said of it: ``SOURCES[name](number)``. Harms are ranks without a dump or a stack, the culprit
among them; files that are cut, or hold nothing; one look alone; clocks that are wrong; native
stacks of some ranks and Python's alone of others; ranks whose wait no frame shows.
"""

from __future__ import annotations

import random
import sys
import tempfile
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from stacks_of_jobs import NOBODYS, looks_at  # noqa: E402

from ray_sentinel.engine.incidents.evidence_case import FolderEvidence, judged  # noqa: E402
from ray_sentinel.evidence import flight_recorder, stacks  # noqa: E402
from ray_sentinel.logs.catalogue import load_catalogue  # noqa: E402
from ray_sentinel.logs.triage import triage_path  # noqa: E402
from ray_sentinel.model.incident import Incident, Verdict  # noqa: E402
from ray_sentinel.model.ras import RasFacts  # noqa: E402
from ray_sentinel.model.recorder import RecorderFacts  # noqa: E402
from ray_sentinel.model.stacks import StackFact  # noqa: E402
from ray_sentinel.waitgraph import ras  # noqa: E402
from tests.support import ray_stories, ray_story  # noqa: E402
from tests.support.engine_sim import Sim, SimRank  # noqa: E402
from tests.support.log_corpus.layouts import LAYOUTS as LOG_LAYOUTS  # noqa: E402
from tests.support.log_corpus.scenarios import SCENARIOS  # noqa: E402
from tests.support.ras_sim.faults import PERSISTENT  # noqa: E402
from tests.support.ras_sim.job import Job as RasJob  # noqa: E402
from tests.support.ras_sim.render import as_json, as_text  # noqa: E402
from tests.support.recorder_fleet import cases as fleet  # noqa: E402
from tests.support.recorder_fleet.clock import Clockwork  # noqa: E402
from tests.support.recorder_fleet.write import HANDS, dumps  # noqa: E402
from tests.support.recorder_sim.dumps import FORMATS, write  # noqa: E402
from tests.support.recorder_sim.faults import FAULTS, simulate  # noqa: E402
from tests.support.recorder_sim.program import LAYOUTS  # noqa: E402

EPOCH = 1.7e9
"""Unix time at which drawn jobs begin, in their recorders."""
RANK_CLOCK = 40.0
"""Seconds by which the clock of each rank of a drawn job is ahead of the one before."""


class Sample(msgspec.Struct, frozen=True, kw_only=True):
    """One verdict on one drawn job, and the truth."""

    source: str
    case: str
    """The fault."""
    harm: str
    """What was done to the evidence."""
    named: tuple[str, ...]
    truth: tuple[str, ...]
    kind: str
    confidence: float
    witnesses: dict[str, float] = {}
    """The weights that each source of evidence puts on the named one that has least, where evidence
    was weighed."""

    @property
    def is_right(self) -> bool:
        """Whether somebody is named, and no innocent."""
        return bool(self.named) and set(self.named) <= set(self.truth)

    @property
    def is_exact(self) -> bool:
        """Whether all culprits are named, and nobody else."""
        return set(self.named) == set(self.truth)


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
        "confidence": facts.confidence,
    }


def recorder_listed(number: int) -> Sample:
    """Dumps of jobs whose layouts are listed."""
    rng = random.Random(f"recorder-listed/{number}")
    layout, fault = rng.choice([*LAYOUTS]), rng.choice(FAULTS)
    case = simulate(layout, fault, rng.randrange(1 << 30))
    left, harm = harmed(write(case.machine, FORMATS[rng.choice([*FORMATS])]), case.culprits, rng)
    world = case.machine.job.world if rng.random() < 0.5 else None
    facts = flight_recorder.explain(left, world_size=world)
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
    return flight_recorder.explain(left, **told), f"{harm}, {looks}{moment}"


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
        witnesses=_witnesses(verdict),
    )


KNOWN_PLACE, UNKNOWN_PLACE = "known place", "unknown place"
"""Stacks are two witnesses: a rank at a place that waits for nobody, and one in code that no table
knows, which may wait there without a frame that says so."""


def _witnesses(verdict: Verdict) -> dict[str, float]:
    """The weights by witness of the culprit that has least; empty if nothing was weighed."""
    stands = {fact.rank.rank: fact for fact in reversed(verdict.stacks) if fact.rank is not None}
    found: list[dict[str, float]] = []
    for culprit in verdict.culprits:
        fact = stands.get(culprit.rank) if culprit.rank is not None else None
        elsewhere = fact is not None and fact.waits_for_others is False
        weights: dict[str, float] = {}
        for item in verdict.evidence:
            if item.rank == culprit.rank and item.weight:
                place = KNOWN_PLACE if elsewhere else UNKNOWN_PLACE
                witness = place if item.source == "stacks" else item.source
                weights[witness] = weights.get(witness, 0.0) + item.weight
        found.append(weights)
    return min(found, key=lambda weights: sum(weights.values()), default={})


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
        confidence=facts.confidence,
    )


def weighed_ras(number: int) -> Sample:
    """The same, weighed by the live judge."""
    _, fault, truth, facts, harm = _polled(random.Random(f"weighed-ras/{number}"))
    return _weighed("weighed: RAS", fault, harm, truth, FolderEvidence(ras=facts))


# Jobs of ranks, played through the engine.

ENGINE_FAULTS: dict[str, dict[str, Any]] = {
    "sleeps": {},
    "reads": {"activity": "input-wait"},
    "storage": {"activity": "storage-wait"},
    "lock": {"activity": "lock-wait"},
    "own code": {"activity": "unknown", "waits": None},
    "stopped": {"state": "T"},
    "blocked": {"state": "D", "wchan": "nfs"},
    "spins": {"spinning": True, "activity": "compute", "active": True},
    "keeps the GIL": {"interpreter": "gil-held", "holds_gil": True, "activity": "unknown"},
    "other call": {
        "where": ("main (train.py:1)", "barrier (distributed_c10d.py:7)"),
        "activity": "collective-wait",
        "waits": True,
        "operation": "barrier",
    },
    # Its device hangs: its host stands where all others stand.
    "device": {
        "where": ("main (train.py:1)", "all_reduce (distributed_c10d.py:99)"),
        "activity": "collective-wait",
        "waits": True,
    },
}
ENDS: dict[str, dict[str, Any]] = {
    "killed": {"signal": 9},
    "raises": {"code": 1, "words": "ValueError: x"},
    "leaves": {"code": 0},
    "unknown end": {},
}
OTHERS = ("a node goes", "all outside", "healthy", "slow", "all slow")
ENGINE_HARMS = ("none", "none", "none", "some mute", "culprit mute", "all mute", "late", "hidden")
"""``hidden``: no frame of those that wait shows that they wait for others."""
UNREADABLE = "py-spy may not look (ptrace)"


class Story:
    """A simulated job with a fault."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        nodes = rng.choice((1, 2, 3))
        self.sim = Sim(
            world=nodes * rng.choice((1, 2, 2, 4)),
            nodes=nodes,
            step_seconds=rng.choice((0.5, 0.5, 2.0)),
            attached=rng.random() < 0.6,
            clock_skew=rng.choice((0.0, 0.0, 30.0, -30.0)),
        )
        self.fault = rng.choice((*ENGINE_FAULTS, *ENDS, *OTHERS))
        self.harm = rng.choice(ENGINE_HARMS)
        self.truth: set[str] = set()

    def play(self) -> None:
        """To the end."""
        self.sim.run(40)
        victim = self.rng.randrange(len(self.sim.ranks))
        self._harm(victim)
        self._begin(self.fault, victim)
        if self.rng.random() < 0.15 and self.fault not in OTHERS and len(self.sim.ranks) > 2:
            other = (victim + self.rng.randrange(1, len(self.sim.ranks))) % len(self.sim.ranks)
            if self.rng.random() < 0.5:
                self.sim.run(5)
            second = self.rng.choice(("sleeps", "own code", "reads", "killed"))
            self._begin(second, other)
            self.fault += f" and {second}"
        self.sim.run(110)

    def _begin(self, fault: str, victim: int) -> None:
        sim = self.sim
        if fault in ENGINE_FAULTS:
            sim.stick(victim, **ENGINE_FAULTS[fault])
        elif fault in ENDS:
            sim.end(victim, **ENDS[fault])
        elif fault == "a node goes":
            node = sim.rank(victim).node
            sim.dead_nodes.add(node)
            self.truth |= {f"rank {one.number}" for one in sim.ranks if one.node == node}
        elif fault == "all outside":
            sim.held = True
        elif fault == "all slow":
            sim.step_seconds = 25.0
        elif fault == "slow":
            # One rank takes half a minute, and goes on: while it does, it is the one waited for.
            sim.stick(victim, activity="compute", active=True)
            sim.run(self.rng.choice((8, 20, 35)))
            sim.rank(victim).stuck = False
            sim.begin_step()
        if fault in ENGINE_FAULTS or fault in ENDS or fault == "slow":
            self.truth.add(f"rank {victim}")

    def _harm(self, victim: int) -> None:
        sim, ranks = self.sim, [one.number for one in self.sim.ranks]
        mute = {
            "some mute": set(self.rng.sample(ranks, max(1, len(ranks) // 3))),
            "culprit mute": {victim},
            "all mute": set(ranks),
        }.get(self.harm, set())
        if self.harm == "late":
            sim.stacks_seconds = self.rng.choice((2.0, 8.0))

        def seen(rank: SimRank) -> StackFact:
            fact = sim.fact(rank)
            if rank.number in mute:
                return StackFact(process=fact.process, error=UNREADABLE)
            if self.harm == "hidden" and fact.activity == "collective-wait":
                return msgspec.structs.replace(
                    fact,
                    signature=("main (train.py:1)", "log_loss (train.py:77)"),
                    activity="unknown",
                    label="in log_loss (train.py:77)",
                    waits_for_others=None,
                )
            return fact

        sim.stack_answer = seen


def engine_ranks(number: int) -> Iterator[Sample]:
    """Jobs of ranks; one sample for each incident."""
    story = Story(random.Random(f"engine-ranks/{number}"))
    story.play()
    records = "records" if story.sim.ranks[0].attached else "no records"
    yield from _of_engine(
        "engine: ranks", story.fault, f"{story.harm}, {records}", story.truth,
        story.sim.engine.incidents(),
    )  # fmt: skip


def _of_engine(
    source: str, case: str, harm: str, truth: Collection[str], told: Sequence[Incident]
) -> Iterator[Sample]:
    for one in told or (None,):
        verdict = one.verdict if one is not None else None
        yield Sample(
            source=source,
            case=case,
            harm=harm,
            named=tuple(sorted(c.label or "node" for c in verdict.culprits)) if verdict else (),
            truth=tuple(sorted(truth)),
            kind=one.kind if one is not None else "none",
            confidence=verdict.confidence if verdict else 0.0,
            witnesses=_witnesses(verdict) if verdict else {},
        )


# Jobs of actors.

RAY_STACKS = {
    "sleeps": ray_story.SLEEPS,
    "spins": ray_story.COMPUTES,
    "stopped": ray_story.STOPPED,
    "writes": ray_story.WRITES,
    "mute": ray_story.MUTE,
}


def engine_actors(number: int) -> Iterator[Sample]:
    """Rollouts and a driver; some processes give no stacks."""
    rng = random.Random(f"engine-actors/{number}")
    story, main, workers = ray_stories.rollouts(rng.choice((2, 3, 5)))
    fault = rng.choice((*RAY_STACKS, "circle", "driver", "goes on", "healthy"))
    first, second = rng.sample(workers, 2)
    truth = {f"Rollout {first.number}"}
    if fault in RAY_STACKS:
        begin = first.spins if fault == "spins" else first.begins
        begin("generate", story.now, RAY_STACKS[fault])
        first.state = {"stopped": "T", "writes": "D"}.get(fault, "S")
        story.call(main, first, "generate")
    elif fault == "circle":
        for one, other in ((first, second), (second, first)):
            one.begins("ask", story.now, ray_story.GETS)
            story.call(main, one, "ask")
            story.call(one, other, "answer", "queued")
        truth.add(f"Rollout {second.number}")
    elif fault == "driver":
        main.stack = ray_story.SLEEPS
        truth = {"driver"}
    else:
        first.begins("generate", story.now, ray_story.COMPUTES)
        first.goes_on = True
        story.call(main, first, "generate")
        truth = set()
    harm = rng.choice(("none", "none", "some mute", "culprit mute"))
    if harm == "some mute":
        story.unseen = rng.sample([main, *workers], 1 + len(workers) // 3)
    elif harm == "culprit mute":
        story.unseen = [main if fault == "driver" else first]
    if fault == "healthy":
        first.rests(story.now)
        story.train(60)
    else:
        story.run(rng.choice((60, 100)))
    told = story.engine.incidents()
    yield from _of_engine("engine: actors", fault, harm, truth, told)


# Logs.


def logs_made(number: int) -> Iterator[Sample]:
    """Whole logs, some of whose files are lost or cut."""
    rng = random.Random(f"logs-made/{number}")
    name = rng.choice(sorted(SCENARIOS))
    job, truth = SCENARIOS[name](rng.randrange(1 << 30))
    if truth.rank is None and not truth.nobody:
        return
    with tempfile.TemporaryDirectory() as folder:
        root = LOG_LAYOUTS[rng.choice([*LOG_LAYOUTS])](job, Path(folder, "job"))
        harm = _harm_logs(root, rng)
        now = job.now + (5 if truth.extra.get("live") else 10 * 86400)
        answer = triage_path(root, load_catalogue(), now=now)
    first = answer.culprits[0] if answer.culprits else None
    yield Sample(
        source="logs",
        case=name,
        harm=harm,
        named=(str(first.rank),) if first is not None and first.rank is not None else (),
        truth=(str(truth.rank),) if truth.rank is not None else (),
        kind=answer.kind,
        confidence=answer.confidence,
    )


def _harm_logs(root: Path, rng: random.Random) -> str:
    files = sorted(path for path in root.rglob("*") if path.is_file()) or [root]
    harm = rng.choice(("none", "cut", "lost"))
    if harm == "lost" and len(files) > 1:
        for path in rng.sample(files, max(1, len(files) // 4)):
            path.unlink()
        return harm
    if harm == "cut":
        for path in files:
            text = path.read_bytes()
            if path.suffix != ".gz":
                # The end is where it counts: a buffer that was never written, some kilobytes.
                path.write_bytes(text[: len(text) - rng.randrange(min(len(text), 8000) + 1)])
        return harm
    return "none"


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
