"""Jobs of ranks and of actors played through the engine, and whole logs, drawn and harmed."""

from __future__ import annotations

import random
import sys
import tempfile
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from samples_of_verdicts import Sample

from ray_sentinel.logs.catalogue import load_catalogue
from ray_sentinel.logs.triage import triage_path
from ray_sentinel.model.incident import Incident
from ray_sentinel.model.stacks import StackFact
from ray_sentinel.waitgraph.confidence import put_on_culprit
from tests.support import ray_story
from tests.support.engine_sim import Sim, SimRank
from tests.support.log_corpus.layouts import LAYOUTS as LOG_LAYOUTS
from tests.support.log_corpus.scenarios import SCENARIOS
from tests.support.ray_stories.jobs import rollouts

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
            witnesses=dict(put_on_culprit(verdict)) if verdict else {},
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
    story, main, workers = rollouts(rng.choice((2, 3, 5)))
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
