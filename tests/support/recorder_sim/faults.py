"""Faults by name: what is put into which rank's program, drawn by seed."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, replace

from tests.support.recorder_sim.machine import Fault, Machine
from tests.support.recorder_sim.program import LAYOUTS, Call, Job

FAULTS = (
    "none",
    "stop before",
    "stop between",
    "stop inside",
    "device unnoticed",
    "device frozen",
    "two stops",
    "two near",
    "two devices",
    "stop and device",
    "wrong op",
    "wrong size",
    "wrong dtype",
    "other order",
    "left out",
    "too many",
    "outside",
)


@dataclass(frozen=True)
class Case:
    """One simulated job at its end."""

    machine: Machine
    culprits: frozenset[int]
    """Those whose fault came to be."""
    hangs: bool
    fault: str = ""


def simulate(layout: str, fault: str, seed: int) -> Case:
    """Run a layout with a fault to its standstill."""
    job = LAYOUTS[layout]()
    rng = random.Random(f"{layout}/{fault}/{seed}")
    faults = _draw(job, fault, rng)
    machine = Machine(job, faults, rng.randrange(1 << 30), eager=rng.random() < 0.3)
    machine.run()
    culprits = frozenset() if fault == "outside" else frozenset(machine.culprits)
    return Case(machine, culprits, machine.standing, fault)


def _draw(job: Job, fault: str, rng: random.Random) -> list[Fault]:
    ranks = rng.sample(range(job.world), 2)
    place = _place(job, ranks[0], rng)
    if fault == "none":
        return []
    if fault == "outside":
        return _all_outside(job, rng)
    if fault == "stop before":
        return [Fault(ranks[0], "stop", rng.randint(1, 3))]
    simple = {"stop between": "stop", "stop inside": "inside"}
    simple |= {"device unnoticed": "unnoticed", "device frozen": "frozen"}
    if fault in simple:
        return [Fault(ranks[0], simple[fault], place)]
    if fault.startswith("two") or fault == "stop and device":
        if fault == "two near":
            ranks[1] = ranks[0] ^ 1
        kinds = {
            "two devices": ("unnoticed", "unnoticed"),
            "stop and device": ("stop", "unnoticed"),
        }
        first, second = kinds.get(fault, ("stop", "stop"))
        other = min(max(place + rng.randint(-4, 4), 1), len(job.programs[ranks[1]]) - 1)
        return [Fault(ranks[0], first, place), Fault(ranks[1], second, other)]
    return _wrong_call(job, fault, ranks[0], rng)


def _place(job: Job, rank: int, rng: random.Random) -> int:
    return rng.randint(1, len(job.programs[rank]) - 2)


def _all_outside(job: Job, rng: random.Random) -> list[Fault]:
    """Everybody stops after the same step's last call."""
    faults = []
    step = rng.randint(1, 2)
    for rank, program in enumerate(job.programs):
        ends = [i for i, call in enumerate(program) if call.group == "world" and call.sync]
        faults.append(Fault(rank, "stop", ends[step] + 1))
    return faults


def _wrong_call(job: Job, fault: str, rank: int, rng: random.Random) -> list[Fault]:
    program = job.programs[rank]
    collectives = [
        i
        for i, call in enumerate(program[:-1])
        if i > 0 and call.op not in ("send", "recv", "batch") and len(job.groups[call.group][1]) > 1
    ]
    at = rng.choice(collectives)
    edits: dict[str, Callable[[Call], Call]] = {
        "wrong op": lambda c: replace(c, op="all_reduce" if c.op != "all_reduce" else "reduce"),
        "wrong size": lambda c: replace(c, size=c.size + 32, op=_sized(c.op)),
        "wrong dtype": lambda c: replace(c, dtype="Half" if c.dtype != "Half" else "Float"),
    }
    if fault in edits:
        program[at] = edits[fault](program[at])
    elif fault == "left out":
        del program[at]
    elif fault == "too many":
        program.insert(at, program[at])
    elif fault == "other order":
        following = next(
            (j for j in collectives if j > at and program[j].group != program[at].group), at - 1
        )
        program[at], program[following] = program[following], program[at]
        at = min(at, following)
    return [Fault(rank, "call", at)]


def _sized(op: str) -> str:
    return "all_reduce" if op == "all_to_all" else op
