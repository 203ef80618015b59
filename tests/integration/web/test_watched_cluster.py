"""The page of a real coordinator on a real cluster."""

from __future__ import annotations

import json
import os
import signal
import urllib.request
from typing import Any

import pytest

from ray_sentinel.actors.coordinator.shared_answer import SHARED_SECONDS
from ray_sentinel.actors.messages import Description
from tests.support.browser import Browser, rendered
from tests.support.ray_cluster import RayCluster, Watched
from tests.support.waiting import eventually
from tests.support.watched_job import WatchedJob

pytestmark = pytest.mark.integration


@pytest.fixture
def watched(watched_by_files: Watched) -> Watched:
    return watched_by_files


def test_the_coordinator_serves_its_page_and_its_state(
    ray_cluster: RayCluster, watched: Watched, chromium: Browser
) -> None:
    url = watched.status().page
    link = ray_cluster.run("status", "--link").stdout.strip()
    assert link.startswith(f"{url}?token=")
    assert f"page: {link}\n" in ray_cluster.run("status", COLUMNS="40").stdout
    assert f"page: {link}\n" in ray_cluster.run("up").stdout
    request = urllib.request.Request(f"{url}api/v1/status")
    request.add_header("Authorization", f"Bearer {link.partition('=')[2]}")
    with urllib.request.urlopen(request, timeout=30) as answer:
        served = json.load(answer)
    assert len(served["nodes"]) == 3
    for asked_by in (url, link):
        asked = ray_cluster.run("status", "--url", asked_by, "--json", RAY_ADDRESS="127.0.0.1:1")
        assert json.loads(asked.stdout)["state"] == served["state"]
        assert "token" not in asked.stdout
    document = rendered(chromium, link)
    for node in served["nodes"]:
        assert node["address"] in document


def served(link: str, path: str) -> Any:
    """The answer to a program that has the link."""
    url, _, token = link.partition("?token=")
    request = urllib.request.Request(f"{url}{path}")
    request.add_header("Authorization", f"Bearer {token}")
    with urllib.request.urlopen(request, timeout=30) as answer:
        return json.load(answer)


def end_of(pulse: dict[str, Any]) -> float:
    """When the last of its points ends."""
    return float(pulse["begin"] + pulse["places"] * pulse["width"])


def test_the_page_has_the_pulse_of_a_real_job(
    ray_cluster: RayCluster, watched: Watched, chromium: Browser
) -> None:
    link = watched.ask("page_link", str)
    with WatchedJob(ray_cluster, watched, "pulsing") as job:
        job.start("none", "none", at=10**9)
        job.until_training(2, beyond=200)
        before = watched.status().time

        def of_now() -> Any:
            # A page that is still open may have asked for it just before, and it is shared.
            told = served(link, "api/v1/pulse")
            return told if before < end_of(told) else None

        told = eventually(of_now, "the last of its points is of now", 5.0 * SHARED_SECONDS)
        after, latest = watched.status().time, max(job.steps().values())
        (pulse,) = [one for one in told["jobs"] if one["job"] == "pulsing"]
        document = rendered(chromium, link)
    (lane,) = pulse["lanes"]
    steps = sum(count for _, count, _, _ in lane["points"])
    # Those before an agent had found the ranks are not known.
    assert 100 <= steps <= latest + 1, "each step once, however many ranks tell of it"
    assert all(0.04 < mean <= longest < 5.0 for _, _, mean, longest in lane["points"])
    assert before < end_of(told) <= after + told["width"], "the last of its points is of now"
    assert "time per step, last 5 min" in document


def test_a_real_rank_tells_its_steps_and_what_it_wrote_last(
    ray_cluster: RayCluster, watched: Watched
) -> None:
    link = watched.ask("page_link", str)
    with WatchedJob(ray_cluster, watched, "telling") as job:
        job.start("none", "none", at=10**9)
        job.until_training(2, beyond=100)
        question = "job=telling&attempt=0&rank=1"
        told = served(link, f"api/v1/page/rank?{question}")
        (steps,) = [one for one in told["plots"] if one["name"] == "time per step"]
        assert all(0.04 < seconds < 5.0 for _, seconds in steps["points"])
        assert told["end"] - told["begin"] == 1800.0
        output = served(link, f"api/v1/page/output?{question}")
        assert "error" not in output
        assert output["text"] or output["missing"]
        assert served(link, "api/v1/page/rank?job=telling&attempt=0&rank=7") is None
        assert (
            "no such rank" in served(link, "api/v1/page/output?job=none&attempt=0&rank=1")["error"]
        )


def test_a_real_incident_is_shown_with_all_that_tells_of_it(
    ray_cluster: RayCluster, watched: Watched, chromium: Browser
) -> None:
    link = watched.ask("page_link", str)
    browser = chromium
    browser.renew()
    with WatchedJob(ray_cluster, watched, "stopping") as job:
        job.start("none", "sigstop", "none", at=100)
        found = job.verdict()
        browser.open(f"{link}#incident/{found.id}")
        browser.until(
            "document.querySelector('.tree .t-bad')?.innerText.startsWith('rank 1')",
            "the tree of stacks with the one that is stopped",
            60.0,
        )
        text = browser.run("document.getElementById('detail').innerText")
        assert found.summary in text
        for part in ("Suspects", "What to do", "Why", "Where they stand", "Timeline"):
            assert f"\n{part}\n" in text
        processes = "[...document.querySelectorAll('.tree .end')].map((one) => one.innerText)"
        assert len(browser.run(processes)) >= 2, "the culprit, and who waits"
        told = served(link, f"api/v1/incidents/{found.id}")
        assert sum(stack["alike"] for stack in told["verdict"]["stacks"]) == 3
        url, _, token = link.partition("?token=")
        request = urllib.request.Request(f"{url}incidents/{found.id}.md")
        request.add_header("Authorization", f"Bearer {token}")
        with urllib.request.urlopen(request, timeout=30) as answer:
            assert answer.read().decode().startswith("# rank 1 on ")


def test_the_link_outlives_the_coordinator_s_process(
    ray_cluster: RayCluster, watched: Watched
) -> None:
    link = watched.ask("page_link", str)
    before = watched.ask("describe", Description)
    os.kill(before.pid, signal.SIGKILL)
    eventually(lambda: watched.ask("describe", Description).pid != before.pid, "another life", 60.0)
    assert ray_cluster.run("status", "--link").stdout.strip() == link
    # Whoever kept the link, through a tunnel say, and who finds the page by its file.
    for asked_by in (link, watched.status().page):
        asked = ray_cluster.run("status", "--url", asked_by, "--json", RAY_ADDRESS="127.0.0.1:1")
        assert json.loads(asked.stdout)["page"] == watched.status().page, asked.stderr
    token = link.partition("=")[2]
    for file in watched.log.rglob("*"):
        if file.is_file():
            assert token.encode() not in file.read_bytes(), file
