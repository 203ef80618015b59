"""Which of the coordinator's incidents concern the attempt that runs."""

from __future__ import annotations

import time
from typing import Any

import msgspec
import pytest

from ray_sentinel.http.server import Handler, Request, Response
from ray_sentinel.supervised_run import PATIENCE, poll_page
from ray_sentinel.watched_page import WatchedPage
from tests.support.coordinator_page import Page

pytestmark = pytest.mark.integration

SINCE = 1000.0


def incident(**more: Any) -> dict[str, Any]:
    base = {"id": "1", "job": "job", "kind": "gil-held", "state": "confirmed", "summary": "rank 3"}
    return {**base, "suspected_at": SINCE + 1, "confirmed_at": SINCE + 2, "bundle": "", **more}


def test_a_confirmed_hang_and_its_evidence(page: Page) -> None:
    page.answer = [incident()]
    seen = poll_page(page.watched(), "job", SINCE)
    assert (seen.hang, seen.bundle) == ("rank 3 (incident 1)", "")
    page.answer = [incident(state="captured", bundle="/b")]
    assert poll_page(page.watched(), "job", SINCE).bundle == "/b"


@pytest.mark.parametrize(
    "more",
    [
        {"job": "another"},
        {"state": "suspected"},
        {"state": "resolved"},
        {"state": "dismissed"},
        {"kind": "slow"},
        {"kind": "stall"},
        {"kind": "pending"},
        {"suspected_at": SINCE - 1},
    ],
)
def test_what_is_no_reason_to_restart(page: Page, more: dict[str, Any]) -> None:
    page.answer = [incident(**more)]
    assert poll_page(page.watched(), "job", SINCE).hang == ""


@pytest.mark.parametrize("kind", ["actor-stuck", "driver-stuck", "call-deadlock", "object-store"])
def test_a_job_of_actors_that_stands_still_hangs(page: Page, kind: str) -> None:
    page.answer = [incident(kind=kind)]
    assert poll_page(page.watched(), "job", SINCE).hang != ""


def test_a_launcher_may_end_by_itself_after_a_rank_died(page: Page) -> None:
    page.answer = [incident(kind="rank-dead")]
    confirmed = SINCE + 2
    assert poll_page(page.watched(), "job", SINCE, confirmed + PATIENCE - 1).hang == ""
    assert poll_page(page.watched(), "job", SINCE, confirmed + PATIENCE + 1).hang != ""


@pytest.mark.parametrize("answer", ["", {}, [], None, {"error": "x"}])
def test_answers_that_say_nothing(page: Page, answer: Any) -> None:
    page.answer = answer
    assert poll_page(page.watched(), "job", SINCE).hang == ""


def test_nobody_answers() -> None:
    nobody = WatchedPage("http://127.0.0.1:9/?token=" + "x" * 43)
    assert poll_page(nobody, "job", SINCE).hang == ""


@pytest.mark.parametrize("set_by", [-3600.0, 3600.0])
def test_the_coordinators_clock_may_be_another(set_by: float) -> None:
    """What the incidents' times are compared with is on the coordinator's clock too."""
    now = time.time()
    since, began = now - 100.0, now + set_by - 100.0
    page = SetPage(set_by)
    try:
        page.answer = [incident(suspected_at=began + 10, confirmed_at=began + 12)]
        assert poll_page(page.watched(), "job", since).hang != ""
        page.answer = [incident(suspected_at=began - 10, confirmed_at=began - 8)]
        assert poll_page(page.watched(), "job", since).hang == "", "of the attempt before"
    finally:
        page.close()


class SetPage(Page):
    """The page of a coordinator whose clock was set."""

    def __init__(self, set_by: float) -> None:
        self.set_by = set_by
        super().__init__()

    def more_routes(self) -> dict[str, Handler]:
        return {"/api/v1/time": self._time}

    def _time(self, _request: Request) -> Response:
        return Response(body=msgspec.json.encode({"time": time.time() + self.set_by}))
