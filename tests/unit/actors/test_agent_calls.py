"""What is said of agents that cannot be asked, or give no answer."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from ray_sentinel.actors.agent_calls import AgentCalls, by_name
from ray_sentinel.actors.messages import pack
from ray_sentinel.actors.names import agent_name


class Answering:
    """Ray whose agents answer as the beginning of their node's name says."""

    def __init__(self) -> None:
        self.looked_up: list[str] = []

    def get_actor(self, name: str, namespace: str) -> Any:
        self.looked_up.append(name)
        if name == agent_name("none"):
            raise ValueError(name)
        method = SimpleNamespace(remote=lambda *_: name)
        return SimpleNamespace(**({} if name == agent_name("older") else {"inspect": method}))

    def wait(
        self, refs: list[str], num_returns: int, timeout: float
    ) -> tuple[list[str], list[str]]:
        late = [ref for ref in refs if ref == agent_name("late")]
        return [ref for ref in refs if ref not in late], late

    def get(self, ref: str) -> bytes:
        return b"\xc1" if ref == agent_name("garbled") else pack(("well",))


def test_each_agent_without_an_answer_is_a_problem() -> None:
    ray = Answering()
    nodes = ("fine", "none", "older", "late", "garbled")
    calls = AgentCalls(ray, by_name(ray), "inspect", dict.fromkeys(nodes, ()), str.upper)
    assert calls.read(tuple[str, ...], 3.0) == {"fine": ("well",)}
    none, older, late, garbled = calls.problems
    assert none == "NONE has no agent: run `ray-sentinel up`"
    assert older == "OLDER has an agent of an older version: inspect is missing"
    assert late == "LATE: no answer to inspect within 3 s"
    assert garbled.startswith("GARBLED: the answer to inspect is unreadable: ")


def test_nobody_is_waited_for_where_nobody_was_asked() -> None:
    ray = Answering()
    calls = AgentCalls(ray, by_name(ray), "inspect", {"none": ()})
    assert calls.read(bytes, 3.0) == {}
    assert calls.problems == ["node none has no agent: run `ray-sentinel up`"]


def test_an_agent_is_looked_up_once_unless_it_is_known() -> None:
    ray = Answering()
    handle = by_name(ray, {"known": ray})
    assert handle("known") is ray
    assert handle("fine") is handle("fine")
    assert ray.looked_up == [agent_name("fine")]
