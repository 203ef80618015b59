"""Which of several training runs in event files is used, and what is said about the others."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from ray_sentinel.errors import InputError
from ray_sentinel.store.event_files.runs import EventRun, meet

MAX_TOLD = 8
"""Most left-out runs that are named, the newest ones; of the others only the number is given."""


def choose(
    runs: list[EventRun], root: Path, within: tuple[float, float] | None, name: str
) -> EventRun | None:
    """The named training run, or else the one that began last; None if there is none.

    Raises InputError if no run, or more than one, has that name.
    """
    training = [run for run in runs if run.trains]
    if name:
        return _named(training, root, name)
    if within is not None:
        training = [run for run in training if meet(run.times, within)] or training
    return training[-1] if training else None


def _named(runs: Sequence[EventRun], root: Path, name: str) -> EventRun:
    """The run that ``name`` means: the name that is shown, or the end of its path; an attempt means
    its whole run."""
    paths = {path: run for run in runs for path in (*run.parts, run.name)}
    found = {path: run for path, run in paths.items() if name in {_name(path, root), str(path)}}
    parts = Path(name).parts
    found = found or {
        path: run for path, run in paths.items() if path.parts[-len(parts) :] == parts
    }
    chosen = {id(run): run for run in found.values()}
    if len(chosen) == 1:
        return next(iter(chosen.values()))
    names = ", ".join(_name(path, root) for path in (found or paths)) or "none"
    problem = "more than one run has the name" if chosen else "no training run has the name"
    raise InputError(f"{root}: {problem} {name!r}. The runs there: {names}")


def _name(path: Path, root: Path) -> str:
    return str(path.relative_to(root)) if path != root else str(root)


def describe_choice(
    chosen: EventRun, runs: list[EventRun], root: Path, *, named: bool
) -> Iterator[str]:
    """Sentences about which of several runs were chosen and combined."""
    others = [run for run in runs if run is not chosen and run.trains]
    if others:
        listed = ", ".join(
            f"{_name(run.name, root)} (steps {run.steps[0]:.0f} to {run.steps[1]:.0f})"
            for run in others[-MAX_TOLD:]
        )
        more = f" and {len(others) - MAX_TOLD} earlier ones" if len(others) > MAX_TOLD else ""
        why = "as was asked for" if named else "the newest"
        yield (
            f"{root} holds {len(others) + 1} training runs: {_name(chosen.name, root)}, {why}, is "
            f"taken; left out: {listed}{more}. To take another one: "
            f"--run {_name(others[-1].name, root)}"
        )
    if chosen.parts:
        parts = ", ".join(_name(path, root) for path in chosen.parts)
        yield (
            f"{_name(chosen.name, root)} goes on from steps that {parts} had done: they are one "
            "run that was started again"
        )
    ranks = sorted({rank for rank, _ in chosen.slots if rank >= 0})
    if len(ranks) > 1:
        yield f"{len(ranks)} ranks wrote event files; those of rank {ranks[0]} are taken"
