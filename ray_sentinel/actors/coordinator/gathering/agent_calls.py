"""Calls the agents of several nodes at once, under a deadline.

Agents may die during a call, and may be called while they start: one that does not answer in time
becomes a problem in the answer, never a missing answer.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future
from functools import partial
from typing import Any, TypeVar

import ray
from ray.exceptions import RayError

from ray_sentinel.actors.coordinator.fleet import Fleet
from ray_sentinel.actors.messages import pack
from ray_sentinel.actors.ray_api import last_line
from ray_sentinel.model.identity import Rank
from ray_sentinel.model.incident import Writer

Placed = TypeVar("Placed", Rank, Writer)
Answers = tuple[dict[str, bytes], list[str]]
"""The answers by node id, and what went wrong."""
Late = Callable[[bytes], None]
"""Takes an answer that came when nobody waited for it any more."""


class Agents:
    """The agents as evidence gathering sees them. Blocks; any thread may call."""

    def __init__(self, fleet: Fleet) -> None:
        self._fleet = fleet

    def ask(
        self,
        method: str,
        requests: Mapping[str, Any],
        seconds: float,
        late_answer: Late | None = None,
    ) -> Answers:
        """Call ``method`` on the agents of some nodes, each with its own entry of ``requests``.

        Answers that arrive after ``seconds`` go to ``late_answer``, on a thread of Ray's, which
        must be quick.
        """
        refs, problems = {}, []
        for node_id, request in requests.items():
            handle = self._fleet.handle(node_id)
            if handle is None:
                problems.append(f"node {node_id[:8]} has no agent: {method} is missing there")
                continue
            try:
                refs[getattr(handle, method).remote(pack(request))] = node_id
            except AttributeError:
                older = "its agent is of an older version"
                problems.append(f"node {node_id[:8]}: {method} is missing there: {older}")
        if not refs:
            return {}, problems
        ready, late = ray.wait(list(refs), num_returns=len(refs), timeout=seconds)
        answers: dict[str, bytes] = {}
        for ref in ready:
            try:
                answers[refs[ref]] = ray.get(ref)
            except RayError as error:
                problems.append(f"node {refs[ref][:8]}: {method} failed: {last_line(error)}")
        problems += [
            f"node {refs[ref][:8]}: no answer to {method} within {seconds:.0f} s" for ref in late
        ]
        if late_answer is not None:
            for ref in late:
                ref.future().add_done_callback(partial(_deliver_late, late_answer))
        return answers, problems

    def ask_about(
        self,
        method: str,
        ranks: Iterable[Rank],
        seconds: float,
        late_answer: Late | None = None,
    ) -> Answers:
        """Ask each node's agent about those of these ranks that run there."""
        return self.ask(method, by_node(ranks), seconds, late_answer)


def _deliver_late(late_answer: Late, answered: Future[bytes]) -> None:
    # An agent that has ended meanwhile was reported as one that did not answer.
    if not answered.cancelled() and answered.exception() is None:
        late_answer(answered.result())


def by_node(placed: Iterable[Placed]) -> dict[str, tuple[Placed, ...]]:
    """Ranks, or other processes, by their node's id."""
    nodes: dict[str, list[Placed]] = {}
    for one in placed:
        nodes.setdefault(one.node, []).append(one)
    return {node: tuple(found) for node, found in nodes.items()}
