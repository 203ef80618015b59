"""Faults of a simulated job, each with the ranks that an explanation must name."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tests.support.ras_sim.job import Job


@dataclass
class Case:
    """A job at one or two moments. ``truth``: the kinds that are right, and who is to be named."""

    job: Job
    kinds: frozenset[str]
    culprits: frozenset[int]


Fault = Callable[[Job, int], Case]


def _case(job: Job, kinds: str, *culprits: int) -> Case:
    return Case(job, frozenset(kinds.split("|")), frozenset(culprits))


def dead(job: Job, victim: int) -> Case:
    job.peers[victim].dead = True
    return _case(job, "rank-dead", victim)


def mute(job: Job, victim: int) -> Case:
    job.peers[victim].mute = True
    return _case(job, "rank-unresponsive", victim)


def behind(job: Job, victim: int) -> Case:
    """The victim launches nothing more; its peers go on until what they launch fills up."""
    for comm in job.containing(victim):
        comm.launch("AllReduce", job.random.randrange(2, 9), but=(victim,))
    return _case(job, "not-enqueued", victim)


def one_behind(job: Job, victim: int) -> Case:
    """As in a job whose ranks wait for each call: told from a moving one by a second poll only."""
    job.world.launch("AllReduce", 1, but=(victim,))
    return _case(job, "not-enqueued", victim)


def chain(job: Job, victim: int) -> Case:
    """Its tensor-parallel peers wait for it, and the whole job waits for them all."""
    tensor, data = job.containing(victim)[1:3]
    tensor.launch("AllReduce", 2, but=(victim,))
    peers = tuple(seat.peer.world for seat in tensor.seats)
    job.world.launch("AllReduce", 2, but=peers)
    data.launch("AllReduce", 2, but=(victim,))
    return _case(job, "not-enqueued", victim)


def wrong_order(job: Job, victim: int) -> Case:
    job.world.launch("AllGather", 2, but=(victim,))
    job.world.seat(victim).counts["Reduce"] += 1
    return _case(job, "collective-mismatch", victim)


def failed(job: Job, victim: int) -> Case:
    job.world.seat(victim).error = 1
    for seat in job.world.seats:
        if seat.peer.world != victim and job.random.random() < 0.5:
            seat.error = 6
    return _case(job, "communicator-error", victim)


def left(job: Job, victim: int) -> Case:
    """It has destroyed its communicator and gone on; the others still use it."""
    job.world.seat(victim).member = False
    return _case(job, "left-communicator", victim)


def stall(job: Job, victim: int) -> Case:
    """All are in the same collective, or in sends: RAS cannot tell."""
    return _case(job, "stall")


def half_gone(job: Job, victim: int) -> Case:
    """Most of the job cannot be reached from here: perhaps it is we who are cut off."""
    for peer in job.peers[: len(job.peers) // 2 + 1]:
        peer.mute = True
    return _case(job, "cannot-tell")


def most_behind(job: Job, victim: int) -> Case:
    """A few are ahead by one: who the others wait for is not to be seen here."""
    many = tuple(peer.world for peer in job.peers[2:])
    job.world.launch("AllGather", 1, but=many)
    return _case(job, "cannot-tell")


PERSISTENT: dict[str, Fault] = {
    "dead": dead,
    "mute": mute,
    "behind": behind,
    "one behind": one_behind,
    "chain": chain,
    "wrong order": wrong_order,
    "failed": failed,
    "left": left,
    "stall": stall,
    "half gone": half_gone,
    "most behind": most_behind,
}
AT_ONCE = ("dead", "mute", "behind", "chain", "wrong order", "failed")
"""Those that a single poll tells."""
