"""``top`` on a terminal beside a real watched cluster."""

from __future__ import annotations

import sys

import pytest

from tests.support.pty_run import on_terminal
from tests.support.ray_cluster import RayCluster, Watched
from tests.support.watched_job import WatchedJob

pytestmark = pytest.mark.integration


def test_a_hang_is_seen_as_it_comes_and_another_watch_after_it_too(
    ray_cluster: RayCluster, watched: Watched
) -> None:
    command = [sys.executable, "-m", "ray_sentinel.cli.main", "top"]
    environ = ray_cluster.environ(TERM="xterm-256color")
    with (
        on_terminal(command, environ, (120, 40)) as shown,
        WatchedJob(ray_cluster, watched, "seen") as job,
    ):
        shown.until("1 map")
        job.start("none", "sigstop", "none", at=120)
        job.until_training(3)
        shown.press("2")
        shown.until(r"rank 1 .*rank 2 ")
        shown.press("s")
        shown.until(r"stack of rank \d of seen")
        shown.until(r"taken by py-spy")
        shown.press("q")
        shown.until(r"steps [0-9.]+ m?s, last 5 min")
        verdict = job.verdict()
        assert verdict.verdict is not None
        shown.until("HUNG")
        shown.until(r"! rank 1 +stopped")
        shown.press("\r")
        shown.until("rank 1 of seen")
        shown.until("named: ")
        shown.press("q")
        shown.until("1 map")
        shown.press("3")
        shown.until(r"127\.0\.0\.2")
        ray_cluster.down()
        shown.until("NOT ANSWERING: this is [0-9.]+ s old")
        ray_cluster.up(watched.log)
        shown.press("1")
        shown.until(r"seen [0-2]\.[0-9] s ago")
        shown.press("q")
        assert shown.ended() == 0
