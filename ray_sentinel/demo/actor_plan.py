"""One job of Ray actors and what goes wrong in it: drawn at random, or given."""

from __future__ import annotations

import random
from typing import Literal

import msgspec

from ray_sentinel.demo.actor_catalogue import (
    ACTOR_ALL,
    ACTOR_FAULTS,
    ACTOR_HEALTHY,
    ACTOR_LIMITS,
    RANKS,
    ROLES,
    ActorClock,
    ActorFaultSpec,
    ActorLayout,
)
from ray_sentinel.demo.plan import MODES, Attach, no_fault
from ray_sentinel.errors import UsageError
from ray_sentinel.model.incident import FaultKind

ATTACHING: tuple[ActorLayout, ...] = ("rl-sync", "rl-async")
"""Layouts whose program may have lines of ray_sentinel in it."""
FIRST_CALL, LAST_CALL = 12, 24
"""First and last call at which the trouble may begin."""
QUIET_SECONDS = 90.0
"""Seconds for which a job without a rhythm is watched."""
STEADY_SECONDS = 30.0
"""Seconds for which a job that is ended from outside, or runs without end, is watched."""


class ActorTrialPlan(msgspec.Struct, frozen=True, kw_only=True):
    """One draw; the same seed gives the same."""

    fault: str
    layout: ActorLayout
    how: str
    """What goes wrong, or what a healthy job does: the catalogue row's ``way``."""
    culprit: str
    """The member that causes the trouble, such as "rollout-2"; empty if there is none."""
    place: str
    """Where in the culprit's code the trouble begins: "call" is the beginning of the call, "deep" a
    function that it calls, "constructor" its constructor."""
    step: int
    """The culprit's call, or the driver's iteration, in which the trouble begins."""
    step_seconds: float
    """Seconds of work in a usual call."""
    sizes: dict[str, int]
    """Number of members of each role."""
    attach: Attach
    named: bool
    """Whether the actors have names."""
    told: Literal["environ", "silent", "runtime_env"]
    """Where the trainers find their ranks: in ``os.environ``, only in the arguments of
    ``init_process_group``, or in the runtime environment."""
    seconds: float
    """Seconds for which a job without end is watched, or for which something slow goes on."""
    variant: int
    seed: int

    @property
    def expected(self) -> ActorFaultSpec:
        """The catalogue's row of the fault."""
        return ACTOR_ALL[self.fault]

    @property
    def clock(self) -> ActorClock:
        """The one that the culprit is judged by."""
        row = self.expected
        return row.rank_clock or row.clock if self._is_rank else row.clock

    @property
    def limit(self) -> float | None:
        """Seconds; None if nothing need be reported."""
        return ACTOR_LIMITS.get(self.clock)

    @property
    def kinds(self) -> tuple[FaultKind, ...]:
        """What the fault may be called."""
        row = self.expected
        return row.rank_kinds or row.kinds if self._is_rank else row.kinds

    @property
    def accused(self) -> list[frozenset[str]]:
        """The sets of members, any of which is right."""
        everyone = {f"{role}-{n}" for role, size in self.sizes.items() for n in range(size)}
        meaning = {"self": {self.culprit}, "all": everyone}
        return [
            frozenset(name for one in members for name in meaning.get(one, {one}))
            for members in self.expected.accused
        ]

    @property
    def _is_rank(self) -> bool:
        return (self.layout, self.culprit.partition("-")[0]) in RANKS


def draw_actors(
    fault: str = "", seed: int | None = None, *, layout: str = "", attach: Attach | None = None
) -> ActorTrialPlan:
    """What is not given is drawn; the same ``seed`` draws the same. Raises UsageError."""
    if seed is None:
        seed = random.SystemRandom().randrange(1 << 31)
    if fault and fault not in ACTOR_ALL:
        raise UsageError(no_fault(fault, ACTOR_FAULTS, ACTOR_HEALTHY))
    dice = random.Random(seed)
    fault = fault or dice.choice(sorted(ACTOR_ALL))
    row = ACTOR_ALL[fault]
    possible = [one for one in row.layouts if layout in ("", one)]
    if not possible:
        raise UsageError(f"{fault} has the layouts {', '.join(row.layouts)}, not {layout}")
    chosen = dice.choice(possible)
    sizes = {role: _size(role, dice) for role in ROLES[chosen]}
    if chosen == "weights":
        sizes["trainer"] = 1
    mode: Attach = dice.choice(MODES) if attach is None else attach
    return ActorTrialPlan(
        fault=fault,
        layout=chosen,
        how=row.way,
        culprit=_culprit(row, sizes, dice),
        place=dice.choice(["call", "deep"]) if row.place == "drawn" else row.place,
        step=dice.randint(FIRST_CALL, LAST_CALL),
        step_seconds=round(dice.uniform(0.2, 0.5), 2),
        sizes=sizes,
        attach=mode if chosen in ATTACHING else "",
        named=dice.random() < 0.5,
        told=dice.choice(("environ", "silent", "runtime_env")),
        seconds=QUIET_SECONDS if chosen == "quiet" or fault == "idle" else STEADY_SECONDS,
        variant=dice.randrange(12),
        seed=seed,
    )


def draw_shown(fault: str = "", seed: int | None = None, attach: Attach = "") -> ActorTrialPlan:
    """A synchronous RL job for the demo: if no fault is given, one of its rollouts stands still
    in its reward function. Raises UsageError."""
    plan = draw_actors(fault or "sleep", seed, layout="rl-sync", attach=attach)
    if fault:
        return plan
    culprit = f"rollout-{plan.seed % plan.sizes['rollout']}"
    return msgspec.structs.replace(plan, culprit=culprit, place="deep", named=False)


def _size(role: str, dice: random.Random) -> int:
    """How many there are of a role."""
    several = {"rollout": (3, 4), "worker": (3, 4), "task": (3, 4), "trainer": (2, 3),
               "engine": (2, 3), "link": (2, 3), "replica": (2, 2), "rank": (2, 2),
               "trial": (2, 2)}  # fmt: skip
    return dice.randint(*several.get(role, (1, 1)))


def _culprit(row: ActorFaultSpec, sizes: dict[str, int], dice: random.Random) -> str:
    if "driver" in row.roles:
        return "driver-0"
    roles = [role for role in sizes if not row.roles or role in row.roles]
    role = dice.choice(roles)
    drawn = f"{role}-{dice.randrange(sizes[role])}"
    return drawn if row.roles or any("self" in members for members in row.accused) else ""
