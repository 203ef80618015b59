"""The stack of one process, taken now, as ``ray-sentinel stacks`` takes those of all."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterator, Sequence

from rich.text import Text

from ray_sentinel.cli.reach import Asked, CoordinatorConnection
from ray_sentinel.cli.top.looks import plain
from ray_sentinel.cli.top.process_lines import ProcessLine
from ray_sentinel.model.stacks import StackFact
from ray_sentinel.report.stacks import frames

TakeStack = Callable[[Sequence[str], int], tuple[tuple[StackFact, ...], tuple[str, ...]]]
"""Takes node ids and a pid, and returns the stacks that were found and what went wrong. Blocks for
seconds."""


def stack_taker(found: Asked) -> TakeStack | None:
    """A function that takes stacks through Ray; None if only the page is reached: it takes none."""
    if not isinstance(found, CoordinatorConnection):
        return None
    ray = found.ray

    def take_stack(
        node_ids: Sequence[str], pid: int
    ) -> tuple[tuple[StackFact, ...], tuple[str, ...]]:
        from ray_sentinel.actors.coordinator.gathering.job_stacks import stack_now

        sampled = stack_now(ray, node_ids, pid)
        return sampled.facts, sampled.problems

    return take_stack


def stack_lines(
    line: ProcessLine, node_ids: Sequence[str], take_stack: TakeStack | None
) -> Iterator[Text]:
    """The stack of a process as lines, the innermost call first; where it cannot be taken from
    here, the command that takes it. Blocks for seconds."""
    yield plain(f"stack of {line.who} of {line.job}", "bold")
    yield plain(f"{line.host} pid {line.pid} · {line.state}", "dim")
    yield Text()
    if take_stack is None:
        yield plain("stacks are taken through Ray, which is not reached from here; where it is:")
        command = f"ray-sentinel dump --job {shlex.quote(line.job)}"
        yield Text("  ").append_text(plain(command, "bold"))
        return
    facts, problems = (
        take_stack(node_ids, line.pid) if node_ids else ((), (f"{line.host}: no agent",))
    )
    seen = [fact for fact in facts if fact.signature] or list(facts)
    for fact in seen[:1]:
        if fact.label:
            yield plain(fact.label, "yellow")
        for frame in frames(fact) or [fact.error or "no frames"]:
            yield Text("  ").append_text(plain(frame))
        yield Text()
        yield plain(f"taken by {fact.tool}; the innermost call is first", "dim")
    if not seen and not problems:
        yield plain("it has ended meanwhile")
    for problem in problems:
        yield plain(problem, "yellow")
