"""Calls the agents of several nodes at once, under a deadline.

Agents may die during a call, and may be called while they start: one that does not answer in time
becomes a problem in the answer, never a missing answer.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from concurrent.futures import Future
from functools import partial
from typing import Any, TypeVar

import msgspec
from ray.exceptions import RayError

from ray_sentinel.actors.messages import unpack
from ray_sentinel.actors.names import NAMESPACE, agent_name
from ray_sentinel.actors.ray_api import last_line

T = TypeVar("T")
Handles = Callable[[str], Any]
"""Gives the handle of a node's agent; None, or raises ValueError, if there is none."""
Late = Callable[[bytes], None]
"""Takes an answer that came when nobody waited for it any more."""


def by_name(ray: Any, known: Mapping[str, Any] | None = None) -> Handles:
    """Looks each agent up once, unless it is ``known``: a look-up is a question to the control
    store."""
    found = dict(known or {})

    def handle(node_id: str) -> Any:
        if node_id not in found:
            found[node_id] = ray.get_actor(agent_name(node_id), namespace=NAMESPACE)
        return found[node_id]

    return handle


def _short(node_id: str) -> str:
    return f"node {node_id[:8]}"


class AgentCalls:
    """Calls of one method on the agents of some nodes, which are under way from the beginning."""

    def __init__(
        self,
        ray: Any,
        handle: Handles,
        method: str,
        requests: Mapping[str, tuple[bytes, ...]],
        label: Callable[[str], str] = _short,
    ) -> None:
        """``requests`` has each node's arguments, by its id; ``label`` names a node in problems."""
        self._ray, self._method, self._label = ray, method, label
        self._nodes: dict[Any, str] = {}
        """Who was asked, by the reference of its answer."""
        self.problems: list[str] = []
        """What went wrong so far, for people."""
        for node_id, request in requests.items():
            try:
                agent = handle(node_id)
            except ValueError:
                agent = None
            if agent is None:
                self._failed(node_id, " has no agent: run `ray-sentinel up`")
                continue
            try:
                self._nodes[getattr(agent, method).remote(*request)] = node_id
            except AttributeError:
                self._failed(node_id, f" has an agent of an older version: {method} is missing")

    def read(self, kind: type[T], seconds: float, late_answer: Late | None = None) -> dict[str, T]:
        """The answers that come within ``seconds``, unpacked, by node id. Later ones go to
        ``late_answer``, on a thread of Ray's, which must be quick."""
        if not self._nodes:
            return {}
        refs = list(self._nodes)
        ready, late = self._ray.wait(refs, num_returns=len(refs), timeout=seconds)
        for ref in late:
            said = f": no answer to {self._method} within {seconds:.0f} s"
            self._failed(self._nodes[ref], said)
            if late_answer is not None:
                ref.future().add_done_callback(partial(_deliver_late, late_answer))
        found: dict[str, T] = {}
        for ref in ready:
            node_id = self._nodes[ref]
            try:
                # One at a time: all packed answers together may be large.
                found[node_id] = unpack(self._ray.get(ref), kind)
            except RayError as error:
                self._failed(node_id, f": {self._method} failed: {last_line(error)}")
            except msgspec.DecodeError as error:
                self._failed(node_id, f": the answer to {self._method} is unreadable: {error}")
        return found

    def _failed(self, node_id: str, said: str) -> None:
        self.problems.append(self._label(node_id) + said)


def _deliver_late(late_answer: Late, answered: Future[bytes]) -> None:
    # An agent that has ended meanwhile was reported as one that did not answer.
    if not answered.cancelled() and answered.exception() is None:
        late_answer(answered.result())
