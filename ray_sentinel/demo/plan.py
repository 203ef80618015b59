"""One training and what goes wrong in it: drawn at random, or given."""

from __future__ import annotations

import difflib
import random
from collections.abc import Iterable
from typing import Any, Literal

import msgspec

from ray_sentinel.demo.catalogue import ALL, FAULTS, HEALTHY, FaultSpec
from ray_sentinel.errors import UsageError

SHOWN = ("fifo", "gil", "sigkill", "sigstop", "sleep")
"""Faults that the demo draws from if none is named, each of another kind."""
PROCESSES = frozenset({"exception", "leave", "restart", "resize", "end-alone", "finish"})
"""Faults, and healthy courses, that depend on how a process ends, and so need ranks that are
processes: an actor outlives its task, however that ends."""
FIRST_STEP, LAST_STEP = 30, 45
"""First and last step at which the trouble may begin, late enough to have learned what is usual."""

Attach = Literal["", "attach", "step"]
"""What the script tells the sentinel: nothing, one line at its beginning, or each of its steps
too."""
MODES: tuple[Attach, ...] = ("attach", "", "step")


class TrainingScript(msgspec.Struct, frozen=True, kw_only=True):
    """How a training goes, beside what its culprits do."""

    steps: int
    spread: float = 1.3
    """Greatest duration of a step, as a multiple of ``step_seconds``."""
    answers: int = 0
    """Answers that the outside service gives to each rank; 0 if there is no such service."""
    first_seconds: float = 0.0
    """Seconds of work before the first step."""
    pause: str = ""
    """What the job does for ``seconds`` seconds after the step that was drawn."""
    seconds: float = 0.0
    phase: str = ""
    """The phase that the script declares during that pause."""
    last: str = "nothing"
    """What comes after the last step: "barrier", "export" (rank 0 goes on), or "nothing"."""


class TrialPlan(TrainingScript, frozen=True, kw_only=True):
    """One draw; the same seed gives the same."""

    fault: str
    layout: str
    world: int
    how: dict[str, str]
    """What each culprit (a rank, as text) does to itself."""
    place: str
    step: int
    step_seconds: float
    attach: Attach
    actors: bool
    """Whether the ranks are Ray actors, and not processes that an actor started."""
    recorder: bool
    """Whether the flight recorder is on."""
    variant: int
    first_call: int
    """Index of the step's first collective that may be changed."""
    seed: int

    @property
    def ranks(self) -> list[int]:
        """The culprits."""
        return sorted(map(int, self.how))

    @property
    def expected(self) -> FaultSpec:
        """The catalogue's row of the fault."""
        return ALL[self.fault]


def draw(
    fault: str = "",
    rank: int | None = None,
    seed: int | None = None,
    *,
    layout: str = "",
    attach: Attach | None = None,
    world: int = 0,
) -> TrialPlan:
    """What is not given is drawn; the same ``seed`` draws the same. Raises UsageError."""
    if seed is None:
        seed = random.SystemRandom().randrange(1 << 31)
    if fault and fault not in ALL:
        raise UsageError(no_fault(fault, FAULTS, HEALTHY))
    dice = random.Random(seed)
    fault = fault or dice.choice(SHOWN)
    row = ALL[fault]
    layout = layout or dice.choice(row.layouts)
    worlds = [6, 7, 8] if layout in ("data", "ddp", "experts") else [6, 8]
    world = world or dice.choice(worlds)
    if rank is not None and not 0 <= rank < world:
        raise UsageError(f"no rank {rank}: this training has ranks 0 to {world - 1}")
    culprits = dice.sample(range(world), len(row.ways))
    if rank is not None and len(culprits) == 1:
        culprits = [rank]
    step = dice.randint(FIRST_STEP, LAST_STEP)
    place = dice.choice(["input", "inside"]) if row.place == "step" else row.place
    mode: Attach = dice.choice(MODES) if attach is None else attach
    return TrialPlan(
        fault=fault,
        layout=layout,
        world=world,
        how=dict(zip(map(str, culprits), row.ways, strict=True)),
        place=place,
        step=step,
        step_seconds=round(dice.uniform(0.2, 0.45), 2),
        attach=mode,
        actors=dice.random() < 0.5 and fault not in PROCESSES,
        recorder=dice.random() < 0.8,
        variant=dice.randrange(12),
        first_call=_first_call(layout, fault),
        seed=seed,
        **msgspec.structs.asdict(_course(fault, step, dice)),
    )


def no_fault(name: str, faults: Iterable[str], healthy: Iterable[str]) -> str:
    """Why there is no fault of that name, with the names that there are."""
    near = difflib.get_close_matches(name, (*faults, *healthy), 1)
    hint = f"did you mean {near[0]}? " if near else ""
    return (
        f"no fault {name}; {hint}there are the faults {', '.join(faults)}; and, with nothing to "
        f"find, the healthy controls {', '.join(healthy)}"
    )


def _first_call(layout: str, fault: str) -> int:
    if layout == "pipeline":
        return 2
    # DDP's first takes a batch, of any size and type; the first two of experts are alike.
    harmless = {"ddp": ("shape", "dtype"), "experts": ("order",)}
    return 1 if fault in harmless.get(layout, ()) else 0


def _course(fault: str, step: int, dice: random.Random) -> TrainingScript:
    """How the training goes but for its fault: as usual, or as a healthy control wants it."""
    usual = TrainingScript(
        steps=100_000 if fault in FAULTS else step + 20, last=dice.choice(["barrier", "nothing"])
    )
    save, evaluate = dice.choice(["save", "write"]), dice.choice(["evaluate-all", "evaluate-one"])
    special: dict[str, dict[str, Any]] = {
        "end": {"steps": step + 1, "last": "barrier"},
        "end-alone": {"steps": step + 1, "last": "nothing"},
        "leave-loop": {"last": "barrier"},
        "outside": {"answers": step},
        "checkpoint": {"pause": save, "seconds": 30.0, "phase": "checkpoint"},
        "checkpoint-quiet": {"pause": save, "seconds": 30.0},
        "evaluate": {"pause": evaluate, "seconds": 30.0},
        "slow-first": {"first_seconds": 20.0},
        "vary": {"spread": 5.0},
        "finish": {"steps": step + 1, "last": "export", "seconds": 12.0},
    }
    return msgspec.structs.replace(usual, **special.get(fault, {}))
