"""Every fault of a job of Ray actors that can be played, and what the sentinel must make of it.

This table is written first: it says what is true, whatever the sentinel says. Who gets into trouble
is a member of the job: "rollout-2" is the third rollout, "driver-0" the driver.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from ray_sentinel.model.incident import FaultKind

ActorClock = Literal["hard", "silence", "start-up", "slow", "healthy"]
ActorLayout = Literal[
    "rl-sync", "rl-async", "tasks", "nested", "pool", "chain", "groups", "growing", "weights",
    "engines", "data-train", "serve", "tune", "quiet",
]  # fmt: skip

ACTOR_LIMITS: dict[ActorClock, float] = {"hard": 5.0, "silence": 20.0, "start-up": 90.0}
"""Seconds from the trouble until the culprit must be named, for each clock. A wait is distinguished
from a long call after max(15 s, 3 x the usual call), and five seconds later it has been looked at;
no call of these jobs usually takes 5 s. A fault of the clock "slow" need not be reported at all."""

ROLES: dict[ActorLayout, tuple[str, ...]] = {
    "rl-sync": ("rollout", "reward", "trainer"),
    "rl-async": ("rollout", "trainer"),
    "tasks": ("task",),
    "nested": ("manager", "worker"),
    "pool": ("worker",),
    "chain": ("link",),
    "groups": ("front", "worker"),
    "growing": ("worker", "newcomer"),
    "weights": ("trainer", "engine"),
    "engines": ("front", "engine"),
    "data-train": ("rank", "mapper"),
    "serve": ("replica",),
    "tune": ("trial",),
    "quiet": ("poller",),
}
"""The roles of a job's members, beside its driver."""
RANKS = frozenset({("rl-sync", "trainer"), ("rl-async", "trainer"), ("data-train", "rank")})
"""The roles whose members are ranks of a process group, and are judged as such."""
CALLED: tuple[ActorLayout, ...] = (
    "rl-sync", "rl-async", "tasks", "nested", "pool", "engines",
)  # fmt: skip
"""Layouts of jobs whose members can get into any kind of trouble."""

Members = tuple[str, ...]


class ActorFaultSpec(msgspec.Struct, frozen=True, kw_only=True):
    """A fault, where it can be played, and which verdicts on it are right."""

    what: str
    """What happens, for people."""
    way: str = ""
    """What the culprit does to itself; empty if the job as a whole gets into trouble."""
    roles: tuple[str, ...] = ()
    """Roles whose members may be the culprit, as far as the layout has them; if empty, all but
    "driver"."""
    layouts: tuple[ActorLayout, ...] = CALLED
    kinds: tuple[FaultKind, ...] = ()
    """Kinds of faults that are a right answer; empty if the job is healthy."""
    rank_kinds: tuple[FaultKind, ...] = ()
    """Kinds that are right if the culprit is a rank; if empty, ``kinds`` holds for ranks too."""
    accused: tuple[Members, ...] = (("self",),)
    """The sets of culprits that are a right answer: "self" is the member that was drawn, "all" is
    every member except the driver."""
    clock: ActorClock = "silence"
    rank_clock: ActorClock | None = None
    """The clock if the culprit is a rank; None if it is the same."""
    place: Literal["call", "deep", "constructor", "drawn"] = "drawn"
    """Where the culprit is when it gets into trouble: in the method that was called, in a function
    far below it, or in its constructor. "drawn" is either of the first two."""


def _stuck(
    what: str, way: str, rank_kind: FaultKind, *, hard: bool = False, of_actors: bool = True
) -> ActorFaultSpec:
    """A member that stands still. If it is not a rank, nobody knows that it should not until a call
    to it is overdue, whatever else is known of it. ``hard``: a rank in this state is named at once.
    ``of_actors``: ``rank_kind`` is a right answer for an actor too."""
    kinds: tuple[FaultKind, ...] = ("actor-stuck", rank_kind) if of_actors else ("actor-stuck",)
    return ActorFaultSpec(
        what=what,
        way=way,
        kinds=kinds,
        rank_kinds=(rank_kind,),
        rank_clock="hard" if hard else None,
    )


def _dead(what: str, way: str, kind: FaultKind = "actor-dead") -> ActorFaultSpec:
    own: tuple[FaultKind, ...] = (kind,) if kind == "actor-dead" else (kind, "actor-dead")
    rank: tuple[FaultKind, ...] = ("rank-dead",) if kind == "actor-dead" else (kind, "rank-dead")
    return ActorFaultSpec(what=what, way=way, kinds=own, rank_kinds=rank, clock="hard")


def _driver(
    what: str, way: str, *kinds: FaultKind, clock: ActorClock = "silence"
) -> ActorFaultSpec:
    return ActorFaultSpec(
        what=what, way=way, roles=("driver",), kinds=kinds, clock=clock, place="call"
    )


ACTOR_FAULTS: dict[str, ActorFaultSpec] = {
    "sleep": _stuck("sleeps in code of its own", "sleep", "host-stuck", of_actors=False),
    "fifo": _stuck("reads from a FIFO that nobody writes to", "fifo", "input-wait"),
    "socket": _stuck("reads from a socket that gives nothing", "socket", "input-wait"),
    "deadlock": _stuck("waits for a lock that nobody releases", "deadlock", "lock-deadlock"),
    "spin": _stuck("spins in C without the GIL", "spin", "cpu-spin"),
    "loop": _stuck("runs an endless Python loop", "loop", "cpu-spin"),
    "gil": _stuck("sleeps in C and keeps the GIL", "gil", "gil-held", hard=True),
    "gil-spin": _stuck("spins in C and keeps the GIL", "gil-spin", "gil-held", hard=True),
    "sigstop": _stuck("is stopped", "sigstop", "rank-stopped", hard=True),
    "kernel": _stuck("is blocked in the kernel, state D", "kernel", "kernel-blocked", hard=True),
    "exception": _dead("raises in a method, and the job ends", "exception"),
    "sigkill": _dead("is killed", "sigkill"),
    "oom": _dead("is killed for its memory by its cgroup", "oom", "oom-killed"),
    "leave": _dead("ends with status 0 amid a call", "leave"),
    "exit": _dead("ends with status 3 amid a call", "exit"),
    "driver-sleep": _driver("the driver sleeps", "sleep", "driver-stuck"),
    "driver-fifo": _driver("the driver reads from a FIFO", "fifo", "driver-stuck", "input-wait"),
    "driver-loop": _driver("the driver runs an endless loop", "loop", "driver-stuck", "cpu-spin"),
    "driver-gil": _driver("the driver keeps the GIL", "gil", "driver-stuck", "gil-held"),
    "driver-stop": _driver("the driver is stopped", "sigstop", "driver-stuck", "rank-stopped"),
    "driver-kernel": _driver(
        "the driver is in state D", "kernel", "driver-stuck", "kernel-blocked"
    ),
    "driver-raises": _driver("the driver raises", "exception", "driver-dead", clock="hard"),
    "driver-killed": _driver("the driver is killed", "sigkill", "driver-dead", clock="hard"),
    "circle": ActorFaultSpec(
        what="two or three actors wait for each other's calls",
        layouts=("chain",),
        kinds=("call-deadlock",),
        accused=(("all",),),
        way="circle",
    ),
    "group-full": ActorFaultSpec(
        what="a call that sleeps fills a concurrency group, and the next one waits for a place",
        layouts=("groups",),
        roles=("front",),
        kinds=("actor-stuck",),
        way="fill",
    ),
    "group-circle": ActorFaultSpec(
        what="a full concurrency group waits for an actor that calls into it",
        layouts=("groups",),
        kinds=("call-deadlock",),
        accused=(("front-0", "worker-0"),),
        way="circle",
    ),
    "weights": ActorFaultSpec(
        what="an engine never comes to the broadcast of new weights",
        layouts=("weights",),
        roles=("engine",),
        kinds=("actor-stuck", "host-stuck"),
        way="sleep",
        place="deep",
    ),
    "weights-circle": ActorFaultSpec(
        what="a trainer waits for an engine that asks the trainer for its weights",
        layouts=("weights",),
        kinds=("call-deadlock",),
        accused=(("trainer-0", "engine-0"),),
        way="circle",
    ),
    "weights-event": ActorFaultSpec(
        what="a trainer waits for an engine that waits for weights that are never sent",
        layouts=("weights",),
        roles=("engine",),
        kinds=("actor-stuck", "host-stuck", "lock-deadlock"),
        accused=(("engine-0",),),
        way="event",
    ),
    "engine-dead": ActorFaultSpec(
        what="an engine is killed, and its front end goes on trying",
        layouts=("engines",),
        roles=("engine",),
        kinds=("actor-dead",),
        way="sigkill",
        place="call",
        clock="hard",
    ),
    "pending": ActorFaultSpec(
        what="what is asked for is larger than any node",
        layouts=("growing",),
        kinds=("pending",),
        accused=((),),
        way="large",
    ),
    "pending-held": ActorFaultSpec(
        what="an older job holds what is asked for",
        layouts=("growing",),
        kinds=("pending",),
        accused=((), ("holder-0",)),
        way="held",
    ),
    "pending-gone": ActorFaultSpec(
        what="the node that had what is asked for is gone",
        layouts=("growing",),
        kinds=("pending", "node-lost"),
        accused=((),),
        way="gone",
    ),
    "constructor": ActorFaultSpec(
        what="an actor that is added sleeps in its constructor",
        layouts=("growing",),
        roles=("newcomer",),
        kinds=("actor-stuck", "startup-stuck"),
        way="sleep",
        place="constructor",
        clock="start-up",  # no other actor of its class shows how long its constructor takes
    ),
    "constructor-first": ActorFaultSpec(
        what="an actor sleeps in its constructor as the job begins",
        layouts=("rl-sync", "nested", "pool"),
        roles=("rollout", "worker"),
        kinds=("actor-stuck", "startup-stuck"),
        way="sleep",
        place="constructor",
        clock="start-up",
    ),
    "runtime-env": ActorFaultSpec(
        what="the runtime environment of an actor that is added is never ready",
        layouts=("growing",),
        kinds=("pending", "startup-stuck"),
        accused=((),),
        way="environment",
    ),
    "object-store": ActorFaultSpec(
        what="a task's argument finds no room beside that of a task that goes on for ever",
        layouts=("growing",),
        kinds=("object-store", "pending"),
        accused=((), ("newcomer-0",)),
        way="store",
    ),
    "slow": ActorFaultSpec(
        what="one rollout takes five times as long as the others, and nothing stands still",
        layouts=("rl-sync", "rl-async", "pool"),
        roles=("rollout", "worker"),
        kinds=("slow",),
        accused=((), ("self",)),
        way="slow",
        clock="slow",
    ),
    "library-stuck": ActorFaultSpec(
        what="a worker of Ray Train, Ray Tune or Ray Serve sleeps",
        layouts=("data-train", "serve", "tune"),
        roles=("rank", "replica", "trial"),
        kinds=("actor-stuck",),
        rank_kinds=("host-stuck",),
        way="sleep",
        place="call",
    ),
    "library-stopped": ActorFaultSpec(
        what="a worker of Ray Train, Ray Tune or Ray Serve is stopped",
        layouts=("data-train", "serve", "tune"),
        roles=("rank", "replica", "trial"),
        kinds=("actor-stuck", "rank-stopped"),
        rank_kinds=("rank-stopped",),
        rank_clock="hard",
        way="sigstop",
        place="call",
    ),
    "input": ActorFaultSpec(
        what="the function that makes the training's batches sleeps",
        layouts=("data-train",),
        roles=("mapper",),
        kinds=("actor-stuck", "input-wait"),
        way="sleep",
        place="call",
    ),
}  # fmt: skip


def _healthy(
    what: str, *layouts: ActorLayout, way: str, roles: tuple[str, ...] = ()
) -> ActorFaultSpec:
    return ActorFaultSpec(
        what=what, layouts=layouts, clock="healthy", accused=((),), way=way, roles=roles
    )


ACTOR_HEALTHY: dict[str, ActorFaultSpec] = {
    "long": _healthy("one generation takes 100 times as long, in small steps",
                     "rl-sync", "rl-async", "nested", "pool", way="long",
                     roles=("rollout", "worker")),
    "in-flight": _healthy("rollouts are always in flight", "rl-async", way="run"),
    "evaluate": _healthy("the driver has the rollouts evaluate between two iterations",
                         "rl-sync", "rl-async", way="evaluate"),
    "idle": _healthy("some actors are never called while the others work",
                     "rl-sync", "nested", way="idle"),
    "return": _healthy("the driver comes to its end", *CALLED, way="end-return"),
    "shutdown": _healthy("the driver calls ray.shutdown() and goes on for a while",
                         *CALLED, way="end-shutdown"),
    "exit-0": _healthy("the driver calls sys.exit(0)", *CALLED, way="end-exit"),
    "ctrl-c": _healthy("somebody presses Ctrl-C", *CALLED, way="run"),
    "job-stop": _healthy("somebody calls `ray job stop`", *CALLED, way="run"),
    "detached": _healthy("the driver ends, and its detached actors run on",
                         "nested", "pool", way="end-detached"),
    "scale": _healthy("actors are added and killed with ray.kill", "growing", way="scale"),
    "two-jobs": _healthy("two jobs run at once", "rl-sync", "nested", "pool", way="run"),
    "client": _healthy("the driver connects by Ray Client",
                       "rl-sync", "tasks", "nested", "pool", way="run"),
    "rebuilt": _healthy("an object is lost with its node and made again", "growing", way="rebuild"),
    "library": _healthy("Ray Train, Ray Tune or Ray Serve comes to its end",
                        "data-train", "serve", "tune", way="end-return"),
    "notebook": _healthy("a person pauses between the cells of a notebook",
                         "quiet", way="notebook"),
    "one-call-polls": _healthy("the driver waits for one call, whose actor polls",
                               "quiet", way="polls"),
    "one-call-sleeps": _healthy("the driver waits for one call, whose actor sleeps between checks",
                                "quiet", way="sleeps"),
    "one-call-queue": _healthy("the driver waits for one call, whose actor takes from an empty "
                               "queue", "quiet", way="queue"),
    "background": _healthy("loops run for ever that nobody waits for", "quiet", way="background"),
}  # fmt: skip

ACTOR_ALL: dict[str, ActorFaultSpec] = {**ACTOR_FAULTS, **ACTOR_HEALTHY}
