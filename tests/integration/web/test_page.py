"""The page in a real browser, and its server on real sockets."""

from __future__ import annotations

import http.client
import json
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator

import pytest

from ray_sentinel.model.gpus import GpuMap, GpuQuantity
from ray_sentinel.model.incident import Incident
from ray_sentinel.model.status import Status
from ray_sentinel.web.page import Page
from ray_sentinel.web.routes import PageSource
from tests.support.browser import Browser, rendered
from tests.support.page_data import HOSTILE, incident, incident_of_actors, status
from tests.support.page_gpus import gpus, ports
from tests.support.page_lanes import report as lanes
from tests.support.page_pulse import report
from tests.support.waiting import eventually

pytestmark = pytest.mark.integration


def hostile_incidents() -> tuple[Incident, ...]:
    return incident(hostile=HOSTILE), incident_of_actors(hostile=HOSTILE)


Serve = Callable[[Callable[[], Status]], Page]


@pytest.fixture
def serve() -> Iterator[Serve]:
    pages: list[Page] = []

    def start(ask: Callable[[], Status]) -> Page:
        source = PageSource(
            ask,
            hostile_incidents,
            pulse=lambda: report(HOSTILE),
            lanes=lambda: lanes(HOSTILE),
            gpus=lambda quantity: gpus(quantity, hostile=HOSTILE),
            ports=lambda: ports(hostile=HOSTILE),
        )
        pages.append(Page(source, port=0))
        return pages[-1]

    yield start
    for page in pages:
        page.close()


def test_a_browser_shows_the_verdict_the_culprit_and_the_incident(
    serve: Serve, chromium: Browser
) -> None:
    document = rendered(chromium, serve(status).link, "[data-cells='8'][data-of='ranks']")
    assert 'class="hung"' in document
    assert "rank 3 on node-1 is stopped by a signal" in document
    assert "3 waiting, 1 stopped; named by an incident: 3;" in document
    assert 'aria-label="rank 3 on node-1, pid 4003, step 1203, train, stopped' in document
    assert "/incidents/0001" in document
    assert "not watched: no agent yet" in document
    assert "driver waits 93 s in ray.get for Rollout.generate at Rollout 2" in document
    assert "<td>Rollout.generate</td><td>93.0 s</td><td>2.5 s</td>" in document


def test_a_browser_shows_who_waits_for_whom_and_who_is_accused(
    serve: Serve, chromium: Browser
) -> None:
    document = rendered(chromium, serve(status).link)
    assert document.count(">ray.get, 93 s</text>") == 1
    assert document.count('class="name" x="14" y="22">Trainer 1</text>') == 1
    assert document.count('class="who root"') == 1
    assert document.count("named by an incident: 3;") == 1
    told = "llama: 8 ranks; node-0: 4 waiting; node-1: 3 waiting, 1 stopped;"
    assert told in document, "cells in one line a host"


def test_a_browser_without_the_link_is_told_how_to_get_in(serve: Serve, chromium: Browser) -> None:
    document = rendered(chromium, serve(status).url, expected="401")
    assert "This page needs its link" in document
    assert "ray-sentinel status" in document
    assert "rank 3" not in document


def test_hostile_text_stays_text(serve: Serve, chromium: Browser) -> None:
    document = rendered(chromium, serve(lambda: status(hostile=HOSTILE)).link)
    assert "<title>2 jobs hung" in document
    assert "time per step, last 60 min" in document, "the pulse of the job with that name"
    assert "<b>Rollout.generate&lt;img" in document
    assert '<th scope="row">node-0&lt;img' in document
    assert "<img" not in document
    assert "&lt;img src=x onerror" in document


def test_a_browser_draws_the_pulse_with_phases_and_incidents(chromium: Browser) -> None:
    told = incident(), incident_of_actors()
    page = Page(PageSource(status, lambda: told, pulse=report, gpus=gpus), port=0)
    try:
        document = rendered(chromium, page.link)
    finally:
        page.close()
    assert document.count('<path class="mean"') >= 3, "a line for steps, and one for each method"
    assert "usual 896 ms · longest 9.92 s" in document
    assert document.count('<rect class="phase"') == 2
    assert "checkpoint 2 times, last 41.0 s" in document
    assert 'aria-label="incident: rank 3 on node-1 is stopped"' in document
    assert "no step has ended for 14.2 s" in document
    assert "no call has ended for 93.0 s" in document
    assert "<b>Trainer.update</b>" in document


def shown_with(chromium: Browser, told: Callable[[GpuQuantity], GpuMap], drawn: str = "") -> str:
    page = Page(PageSource(status, tuple, pulse=report, gpus=told), port=0)
    try:
        return rendered(chromium, page.link, drawn)
    finally:
        page.close()


def test_a_browser_shows_gpus_as_a_heat_map_with_what_is_stale(chromium: Browser) -> None:
    document = shown_with(chromium, gpus)
    assert document.count('<th scope="row">node-') == 6
    assert document.count('<td class="q9" title="node-0') == 8
    assert document.count('<td class="stale" title="node-5') == 8
    assert "5 min old" in document
    assert "8 not reported for more than 30 s" in document
    assert 'value="temperature"' in document


def test_thousands_of_gpus_fit_on_a_page(chromium: Browser) -> None:
    many = "[data-cells='8192']"
    document = shown_with(chromium, lambda quantity: gpus(quantity, nodes=1024), many)
    assert document.count("<i ") < 50, "they are drawn, not built"
    assert "8192 GPUs on 1024 nodes" in document


def test_a_browser_says_that_there_are_no_gpus(chromium: Browser) -> None:
    document = shown_with(chromium, lambda quantity: GpuMap(quantity=quantity))
    told = "nvml is quarantined (slow) on 2 nodes; amdgpu finds none on 2 nodes"
    assert f"No GPUs are reported: {told}." in document


def test_a_job_of_many_ranks_fits_on_a_page(serve: Serve, chromium: Browser) -> None:
    cells = "[data-cells='2048'][data-of='ranks']"
    document = rendered(chromium, serve(lambda: status(ranks=2048)).link, cells)
    assert "2047 waiting</span>" in document


def test_an_error_in_the_console_is_told(serve: Serve, chromium: Browser) -> None:
    link = serve(status).link
    browser = chromium
    browser.renew()
    browser.open(link)
    browser.settle()
    assert browser.complaints == []
    for script, told in (
        ("console.error('it broke')", "it broke"),
        ("fetch('/nowhere')", "404"),
        ("setTimeout(() => { throw new Error('thrown'); })", "thrown"),
        ("fetch('http://127.0.0.1:9/').catch(() => 0)", "Content Security Policy"),
    ):
        browser.complaints.clear()
        browser.run(f"{script};0")
        eventually(lambda: browser.run("1") and browser.complaints, f"{told} is noted")
        assert told in browser.complaints[0]


def test_a_failing_answer_is_said_and_the_server_goes_on(serve: Serve) -> None:
    def fail() -> Status:
        raise RuntimeError("no state")

    page = serve(fail)
    host, port = page.url.removeprefix("http://").rstrip("/").split(":")
    answers = []
    for path in ("/api/v1/status", "/api/v1/incidents", "/nowhere", "/healthz"):
        connection = http.client.HTTPConnection(host, int(port), timeout=10)
        bearer = {"Authorization": f"Bearer {page.link.partition('=')[2]}"}
        connection.request("GET", path, headers=bearer)
        answers.append(connection.getresponse().status)
        connection.close()
    assert answers == [500, 200, 404, 200]


def test_a_taken_port_is_said_and_the_next_is_used() -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        taken = other.getsockname()[1]
        page = Page(PageSource(status, tuple), port=taken)
        try:
            assert page.url
            assert f":{taken}/" not in page.url
            assert f"port {taken} is taken" in page.notes[0]
        finally:
            page.close()


def run_cli(*words: str) -> tuple[int, str, str]:
    command = [sys.executable, "-m", "ray_sentinel", *words]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    return done.returncode, done.stdout, done.stderr


def test_the_command_line_reads_through_a_url_without_ray(serve: Serve) -> None:
    url = serve(status).url
    code, out, _ = run_cli("status", "--url", url, "--json")
    assert (code, json.loads(out)["state"]) == (1, "hung")
    code, out, _ = run_cli("incidents", "show", "0001", "--url", url)
    assert code == 1
    assert "rank 3" in out
    assert "\x1b[31m" not in out


def test_a_url_that_nobody_serves_says_so() -> None:
    code, _, err = run_cli("status", "--url", "http://127.0.0.1:9")
    assert code == 3
    assert "127.0.0.1:9" in err
    code, _, err = run_cli("status", "--url", "ftp://x")
    assert code == 2
    assert "expected http://HOST:PORT" in err
