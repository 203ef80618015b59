"""What the page gets of the incidents: those that are open in brief, the rest in parts."""

from __future__ import annotations

import json
import time

import msgspec
import pytest

from ray_sentinel.http.server import Request, Response
from ray_sentinel.model.incident import Incident
from ray_sentinel.web.incidents import MOST_ROWS, SHOWN, in_brief, rows
from ray_sentinel.web.routes import PageSource, routes
from tests.support.page_data import HOSTILE, incident, incident_of_actors, status
from tests.support.page_stacks import with_stacks


def over(number: int, **changes: object) -> Incident:
    one = msgspec.structs.replace(incident(number=f"{number:05}"), state="resolved")
    return msgspec.structs.replace(one, **changes)


def ask(path: str, *incidents: Incident, query: str = "") -> Response:
    table = routes(PageSource(status=status, incidents=lambda: incidents))
    handler = table.get(path) or table[path[: path.rindex("/") + 1]]
    return handler(Request(method="GET", path=path, headers={}, query=query))


def test_those_that_are_open_are_told_whatever_came_after_them() -> None:
    first = incident(number="open")
    told = in_brief((first, *(over(number) for number in range(300))))
    assert [one["id"] for one in told["incidents"][:2]] == ["open", f"{300 - SHOWN:05}"]
    assert len(told["incidents"]) == 1 + SHOWN
    assert told["incident_counts"] == {"open": 1, "all": 301}


def test_many_that_are_open_are_counted_and_the_last_told() -> None:
    told = in_brief([incident(number=f"{number:05}") for number in range(500)])
    assert [one["id"] for one in told["incidents"]] == [f"{n:05}" for n in range(480, 500)]
    assert told["incident_counts"]["open"] == 500


def test_ranks_that_wait_are_drawn_as_actors_are() -> None:
    ranks, actors = in_brief((with_stacks(incident()), incident_of_actors()))["incidents"]
    assert [box["title"] for box in ranks["waits"]["boxes"]] == [
        "ranks 0-2, 4-6",
        "rank 7",
        "rank 3",
    ]
    assert ranks["waits"]["boxes"][-1]["kind"] == "root"
    assert "no progress for 3.7 s" in [arrow["label"] for arrow in ranks["waits"]["arrows"]]
    assert ranks["to_do"].startswith("kill -CONT")
    assert actors["waits"]["arrows"][0]["label"] == "ray.get, 93 s"


def test_one_is_told_with_its_picture_and_the_promised_api_without() -> None:
    told = json.loads(ask("/api/v1/page/incidents/0002", incident_of_actors()).body)
    assert told["waits"]["boxes"][-1]["title"] == "Rollout 2"
    assert told["steps"] == [
        "driver waits 93 s in ray.get for Trainer 1",
        "Trainer 1 waits in all_reduce of Trainer",
        "all_reduce of Trainer: Rollout 2 has not come to it",
    ]
    plain = json.loads(ask("/api/v1/incidents/0002", incident_of_actors()).body)
    assert not {"waits", "steps"} & plain.keys()
    assert ask("/api/v1/page/incidents/9", incident_of_actors()).status == 404


def test_the_list_is_read_in_parts_back_to_the_first() -> None:
    known = [over(number) for number in range(250)]
    seen: list[str] = []
    more = True
    while more:
        before = f"&before={seen[-1]}" if seen else ""
        part = rows(known, f"limit={MOST_ROWS}{before}")
        seen += [one["id"] for one in part["incidents"]]
        more = part["more"]
    assert seen == [one.id for one in reversed(known)]
    assert rows(known, f"before={known[0].id}")["incidents"] == []
    assert rows(known, "before=forgotten")["incidents"] == []


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("", ["4", "3", "2", "1", "0"]),
        ("state=open", ["4"]),
        ("state=over", ["3", "2", "1", "0"]),
        ("state=dismissed", ["2"]),
        ("job=b%20%26", ["3", "1"]),
        ("job=b+%26&state=dismissed", []),
        ("kind=slow", ["0"]),
        ("limit=2", ["4", "3"]),
    ],
)
def test_a_filter_leaves_what_fits(query: str, expected: list[str]) -> None:
    known = [over(number, id=str(number), job="b &" if number % 2 else "a") for number in range(4)]
    known[0] = msgspec.structs.replace(known[0], kind="slow")
    known[2] = msgspec.structs.replace(known[2], state="dismissed")
    told = rows([*known, incident(number="4")], query)
    assert [one["id"] for one in told["incidents"]] == expected
    assert told["jobs"] == ["llama", "b &", "a"]
    assert told["kinds"] == ["rank-stopped", "slow"]


@pytest.mark.parametrize(
    "query",
    [
        "limit=0", "limit=101", "limit=-1", "limit=²", "limit=" + "9" * 400, "state=x", "kind=%00",
        "offset=3", "job=" + "x" * 3000, "&" * 1999 + "zz=1",
    ],
)  # fmt: skip
def test_a_question_that_says_nothing_is_refused(query: str) -> None:
    answer = ask("/api/v1/page/incidents", incident(), query=query)
    assert answer.status == 400
    assert "error" in json.loads(answer.body)


def test_hostile_names_stay_data() -> None:
    told = ask("/api/v1/page/incidents", incident(hostile=HOSTILE))
    assert json.loads(told.body)["incidents"][0]["summary"].endswith(HOSTILE)


def test_ten_thousand_are_told_at_once() -> None:
    known = tuple(over(number) for number in range(10_000))
    began = time.process_time()
    brief, part = in_brief(known), rows(known, "job=none&state=over")
    assert time.process_time() - began < 0.5
    assert len(brief["incidents"]) == SHOWN
    assert part["incidents"] == []
    assert len(msgspec.json.encode(rows(known, "limit=100"))) < 60_000
