"""How often the coordinator is asked for what, and what stays when it does not answer."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from ray_sentinel.cli.open_incidents import ASKED_EVERY
from ray_sentinel.cli.top.asking import PULSE_EVERY, StatusAsker
from ray_sentinel.errors import UnreachableError
from tests.support.page_data import incident, status
from tests.support.page_pulse import report


class Coordinator:
    """Answers from memory, and counts who asks for what."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.fails: dict[str, Exception] = {}
        self.answers: dict[str, Any] = {
            "status": status(), "incidents": (incident(),), "pulse": report()
        }  # fmt: skip

    def ask(self, method: str, kind: Any, *arguments: Any, seconds: float = 10.0) -> Any:
        self.asked.append(method)
        if method in self.fails:
            raise self.fails[method]
        return self.answers[method]

    def page_link(self) -> str:
        return ""

    def renew(self) -> None:
        pass


def test_the_status_is_asked_for_at_each_look_and_the_rest_when_it_is_due() -> None:
    coordinator, now = Coordinator(), [100.0]
    asker = StatusAsker(coordinator, clock=lambda: now[0])
    for _ in range(30):
        asker.ask_once()
        now[0] += 1.0
    assert coordinator.asked.count("status") == 30
    assert coordinator.asked.count("incidents") == 30 / ASKED_EVERY
    assert coordinator.asked.count("pulse") == 30 / PULSE_EVERY
    asker.hurry()
    asker.ask_once()
    assert coordinator.asked[-3:] == ["status", "incidents", "pulse"]


@pytest.mark.parametrize(
    "error",
    [
        UnreachableError("404"),
        AttributeError("pulse"),
        msgspec.ValidationError("newer"),
        OSError("reset"),
    ],
)
def test_a_coordinator_without_a_pulse_is_shown_all_the_same(error: Exception) -> None:
    coordinator = Coordinator()
    coordinator.fails["pulse"] = error
    asker = StatusAsker(coordinator, clock=lambda: 100.0)
    asker.ask_once()
    assert asker.seen.status is not None
    assert asker.seen.incidents
    assert asker.seen.pulse is None
    assert not asker.seen.error
    asker.ask_once()
    assert coordinator.asked.count("pulse") == 1, "not at each look"


def test_what_was_seen_stays_when_nobody_answers() -> None:
    coordinator = Coordinator()
    asker = StatusAsker(coordinator, clock=lambda: 100.0)
    asker.ask_once()
    coordinator.fails["status"] = UnreachableError("the coordinator is gone")
    asker.ask_once()
    assert asker.seen.pulse is not None
    assert asker.seen.status is not None
    assert asker.seen.error == "the coordinator is gone"
