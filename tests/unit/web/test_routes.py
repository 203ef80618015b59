"""What the coordinator's page and its API answer, without a socket."""

from __future__ import annotations

import gzip
import json
from itertools import accumulate

import msgspec
import pytest

from ray_sentinel import regex as re
from ray_sentinel.http.server import Request, Response
from ray_sentinel.model.last_hour import PulseReport
from ray_sentinel.model.status import MemberStatus, RankStatus
from ray_sentinel.web.columns import in_columns
from ray_sentinel.web.routes import PageSource, local, routes, static_files
from tests.support.page_data import HOSTILE, incident, status
from tests.support.page_gpus import gpus, ports
from tests.support.page_lanes import report as lanes
from tests.support.page_pulse import report
from tests.support.page_thousands import scattered

SVG = b"http://www.w3.org/2000/svg"
"""A namespace, which nobody asks for."""


def ask(path: str, host: str = "127.0.0.1:9401", *, hostile: str = "") -> Response:
    source = PageSource(
        status=lambda: status(hostile=hostile), incidents=lambda: (incident(hostile=hostile),)
    )
    table = routes(source)
    handler = table.get(path) or table[path[: path.rindex("/") + 1]]
    return handler(Request(method="GET", path=path, headers={"host": host}))


def test_the_api_has_the_fields_that_programs_were_promised() -> None:
    found = json.loads(ask("/api/v1/status").body)
    assert found["state"] == "hung"
    assert {"verdict", "nodes", "unwatched", "jobs"} <= set(found)
    assert found["jobs"][0]["ranks"][3]["state"] == "stopped"
    assert json.loads(ask("/api/v1/ranks").body) == found["jobs"]


def test_the_page_gets_the_last_incidents_without_what_it_does_not_show() -> None:
    many = tuple(incident(number=f"{number:04}") for number in range(30))
    source = PageSource(status=status, incidents=lambda: many)
    asked = Request(method="GET", path="/api/v1/page", headers={})
    shown = json.loads(routes(source)["/api/v1/page"](asked).body)
    assert shown["status"]["state"] == "hung"
    assert [one["id"] for one in shown["incidents"]] == [f"{n:04}" for n in range(10, 30)]
    assert shown["incidents"][0]["culprits"][0]["rank"] == 3
    assert "verdict" not in shown["incidents"][0]


@pytest.mark.parametrize("accepted", ["gzip, deflate, br", "br;q=1.0,gzip", "identity", ""])
def test_a_large_answer_is_packed_for_who_takes_that(accepted: str) -> None:
    source = PageSource(status=lambda: status(ranks=2048), incidents=tuple)
    asked = Request(method="GET", path="/api/v1/status", headers={"accept-encoding": accepted})
    response = routes(source)["/api/v1/status"](asked)
    packed = dict(response.headers).get("Content-Encoding") == "gzip"
    assert packed == ("gzip" in accepted)
    plain = gzip.decompress(response.body) if packed else response.body
    assert len(json.loads(plain)["jobs"][0]["ranks"]) == 2048
    assert not packed or len(response.body) < len(plain) / 10


def test_what_is_no_json_is_not_packed_on_the_thread_of_all_who_ask() -> None:
    image = b"SQLite format 3\0" * 10_000
    source = PageSource(status=status, incidents=tuple, history=lambda: image)
    for path in ("/api/v1/history", "/page.js"):
        asked = Request(method="GET", path=path, headers={"accept-encoding": "gzip"})
        response = routes(source)[path](asked)
        assert "Content-Encoding" not in dict(response.headers)
        assert len(response.body) > 2048


def test_one_incident_is_as_in_the_list() -> None:
    (listed,) = json.loads(ask("/api/v1/incidents").body)
    assert json.loads(ask("/api/v1/incidents/0001").body) == listed
    assert listed["culprits"][0]["rank"] == 3
    assert listed["confidence"] == 0.99


@pytest.mark.parametrize("path", ["/api/v1/incidents/9", "/incidents/9", "/incidents/%00%2e"])
def test_an_unknown_incident_is_not_found(path: str) -> None:
    assert ask(path).status == 404


def test_a_report_holds_no_markup_from_outside_and_may_run_nothing() -> None:
    response = ask("/incidents/0001", hostile=HOSTILE)
    assert b"<img" not in response.body
    assert b"&lt;img" in response.body
    policy = dict(response.headers)["Content-Security-Policy"]
    assert "default-src 'none'" in policy


def test_an_incident_is_told_as_markdown() -> None:
    response = ask("/incidents/0001.md", hostile=HOSTILE)
    assert response.content_type.startswith("text/markdown")
    assert response.body.startswith(b"# rank 3 on node-1 is stopped")
    assert b"\x1b" not in response.body
    assert ask("/incidents/0002.md").status == 404
    assert ask("/incidents/.md").status == 404


@pytest.mark.parametrize("path", sorted(static_files()))
def test_the_page_loads_nothing_from_elsewhere(path: str) -> None:
    response = ask(path)
    assert response.status == 200
    assert dict(response.headers)["Content-Security-Policy"].startswith("default-src 'self';")
    elsewhere = re.findall(rb"(?:https?:)?//[a-z0-9.]+[^\s\"']*", response.body)
    assert set(elsewhere) <= {SVG}


def test_the_first_view_is_small() -> None:
    files = static_files()
    later = files.keys() - loaded_first()
    assert later == {"/detail.js", "/stacks.js", "/icicle.js"}
    first = sum(len(body) for path, (body, _) in files.items() if path not in later)
    assert 20_000 < first + len(ask("/api/v1/page").body) + len(pulse_of(report())) < 190_000


def loaded_first() -> set[str]:
    """What a browser loads before the first view: what the page names, and what these import."""
    files, found, waiting = static_files(), set[str](), ["/", "/page.css", "/page.js"]
    while waiting:
        path = waiting.pop()
        if path not in found:
            found.add(path)
            text = files[path][0].decode()
            waiting += [f"/{name}" for name in re.findall(r'(?m)^import .* from "\./(.*)";$', text)]
    return found | {path for path in files if path.endswith(".svg")}


def pulse_of(told: PulseReport) -> bytes:
    source = PageSource(status=status, incidents=tuple, pulse=lambda: told)
    return routes(source)["/api/v1/pulse"](Request(method="GET", path="", headers={})).body


@pytest.mark.parametrize("query", ["quantity=power", "", "quantity=", "quantity=%00", "x" * 9000])
def test_one_quantity_of_the_gpus_is_told(query: str) -> None:
    table = routes(PageSource(status=status, incidents=tuple, gpus=gpus))
    asked = Request(method="GET", path="/api/v1/gpus", headers={}, query=query)
    response = table["/api/v1/gpus"](asked)
    assert response.status == (200 if query == "quantity=power" else 400)
    assert len(json.loads(response.body).get("rows", ())) == (6 if query == "quantity=power" else 0)


def test_the_lanes_of_a_job_are_saved_as_a_trace() -> None:
    table = routes(PageSource(status=status, incidents=tuple, lanes=lambda: lanes(HOSTILE)))

    def saved(query: str) -> Response:
        asked = Request(method="GET", path="/api/v1/perfetto", headers={}, query=query)
        return table["/api/v1/perfetto"](asked)

    def jobs(query: str) -> set[str]:
        told = json.loads(saved(query).body)["traceEvents"]
        return {one["args"]["name"] for one in told if one["name"] == "process_name"}

    assert jobs("job=train_rl-1") == {"train_rl-1"}
    assert jobs("") == {"train_rl-1", f"llama{HOSTILE} (attempt 1)"}
    assert saved("job=none").status == 404
    assert HOSTILE not in str(saved("").headers)
    assert dict(saved("").headers)["Content-Disposition"].startswith("attachment; ")


def test_a_second_of_thousands_of_ranks_and_gpus_is_small() -> None:
    ranks = scattered(8192)
    source = PageSource(
        status=lambda: ranks,
        incidents=lambda: tuple(incident(number=f"{number:04}") for number in range(10_000)),
        pulse=report,
        gpus=lambda quantity: gpus(quantity, nodes=1024),
        ports=lambda: ports(1024),
        lanes=lambda: lanes(number=8192),
    )
    table, packed = routes(source), {"accept-encoding": "gzip"}

    def size(path: str, query: str = "") -> int:
        asked = Request(method="GET", path=path, headers=packed, query=query)
        return len(table[path](asked).body)

    heat = size("/api/v1/gpus", "quantity=power")
    told, drawn = size("/api/v1/pulse"), size("/api/v1/lanes")
    # As often as page.js asks for each.
    each_second = size("/api/v1/page") + (told + heat + drawn) / 10 + size("/api/v1/ports") / 30
    assert each_second < 50_000
    files = sum(map(size, static_files()))
    assert files + size("/api/v1/page") + told + heat < 400_000


def test_ranks_members_and_nodes_come_in_columns() -> None:
    told = scattered(16)
    asked = Request(method="GET", path="/api/v1/page", headers={})
    source = PageSource(status=lambda: told, incidents=tuple)
    shown = json.loads(routes(source)["/api/v1/page"](asked).body)["status"]
    whole = json.loads(msgspec.json.encode(told))
    rest = dict.fromkeys(("jobs", "nodes"))
    assert {**shown, **rest} == {**whole, **rest}
    job, actors = shown["jobs"]
    rest = dict.fromkeys(("ranks", "members"))
    assert [{**one, **rest} for one in shown["jobs"]] == [{**one, **rest} for one in whole["jobs"]]
    ranks, columns = told.jobs[0].ranks, job["ranks"]["columns"]
    assert columns["rank"] == [0] + 15 * [1]
    assert [*accumulate(columns["pid"])] == [one.pid for one in ranks]
    assert set(columns) == {*RankStatus.__struct_fields__, "tenths_earlier"} - {"step_age_seconds"}
    last = job["ranks"]["last_step"]
    ages = [told.time - last + tenths / 10 for tenths in columns["tenths_earlier"]]
    assert ages == pytest.approx([one.step_age_seconds for one in ranks], abs=0.11)
    assert set(actors["members"]) == set(MemberStatus.__struct_fields__)
    assert actors["members"]["label"] == ["driver", "Rollout 2"]
    assert actors["ranks"]["columns"] == {name: [] for name in columns}


def test_what_collectors_of_many_nodes_say_is_told_once() -> None:
    told = scattered(8192)
    shown = in_columns(told)["nodes"]
    assert "memory_bytes" not in shown["columns"]
    assert set(shown["columns"]["metrics_url"]) == {"http://:9400/metrics"}
    of_node = shown["columns"]["collectors"]
    assert len(of_node) == 1024
    assert len(shown["collectors"]) == 1 + len(told.nodes) // 100 + 1
    for index in (0, 3, 4, 103):
        said = shown["collectors"][of_node[index]]
        node = told.nodes[index]
        assert [one["name"] for one in said] == [one.name for one in node.collectors]
        assert [one["message"] for one in said] == [one.message for one in node.collectors]
        assert set(said[0]) == {"name", "state", "success", "message"}


def test_the_time_of_a_last_step_stays_as_it_is_told_while_nobody_steps() -> None:
    before = scattered(64)
    job = before.jobs[0]
    older = tuple(
        msgspec.structs.replace(one, step_age_seconds=(one.step_age_seconds or 0.0) + 7.0)
        for one in job.ranks
    )
    after = msgspec.structs.replace(
        before, time=before.time + 7.0, jobs=(msgspec.structs.replace(job, ranks=older),)
    )
    assert in_columns(after)["jobs"][0]["ranks"] == in_columns(before)["jobs"][0]["ranks"]


def test_the_pulse_is_told_where_there_is_one() -> None:
    told = json.loads(pulse_of(report()))
    assert [job["counts"] for job in told["jobs"]] == ["steps", "calls"]
    assert told["places"] * told["width"] == 3600
    assert len(told["jobs"][0]["lanes"][0]["points"]) > 300
    assert "/api/v1/pulse" not in routes(PageSource(status=status, incidents=tuple))


@pytest.mark.parametrize(
    ("host", "expected"),
    [
        ("127.0.0.1:9401", True),
        ("localhost", True),
        ("LOCALHOST.:8080", True),
        ("[::1]:9401", True),
        ("::1", True),
        ("10.1.2.3:1", True),
        ("evil.example:9401", False),
        ("localhost.evil.example", False),
        ("127.0.0.1.nip.io", False),
        ("", False),
    ],
)
def test_only_this_machine_by_number_or_as_localhost(host: str, expected: bool) -> None:
    assert local(host) is expected
    assert (ask("/api/v1/status", host).status == 200) is expected


def test_what_is_shown_is_not_kept_by_a_browser() -> None:
    assert dict(ask("/api/v1/status").headers)["Cache-Control"] == "no-store"
