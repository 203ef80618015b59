"""Who is left of an attempt, in a /proc of our own."""

from __future__ import annotations

from pathlib import Path

from ray_sentinel.progress.discovery.descendants import descendants
from ray_sentinel.supervise.attempt.orphans import orphans
from tests.support.proc_tree import ProcTree

TOLD = {"RAY_SENTINEL_JOB": "a", "RAY_SENTINEL_ATTEMPT": "1"}


def test_who_was_started_with_all_variables_since_then_is_left(tmp_path: Path) -> None:
    tree = ProcTree(tmp_path)
    tree.process(101, environ={**TOLD, "RANK": "0"}, start=500)
    tree.process(102, environ={**TOLD, "RAY_SENTINEL_ATTEMPT": "2"}, start=500)
    tree.process(103, environ=TOLD, start=499)
    tree.process(104, environ=TOLD, start=500, state="Z")
    tree.process(105, environ={"RAY_SENTINEL_JOB": "a"}, start=500)
    assert [one.pid for one in orphans(TOLD, 500, tmp_path)] == [101]


def test_of_two_values_of_a_variable_the_first_is_the_process_s(tmp_path: Path) -> None:
    folder = ProcTree(tmp_path).process(101, environ={**TOLD, "RAY_SENTINEL_JOB": "b"}, start=500)
    with open(folder / "environ", "ab") as file:
        file.write(b"RAY_SENTINEL_JOB=a\0")
    assert orphans(TOLD, 500, tmp_path) == []
    assert [one.pid for one in orphans({"RAY_SENTINEL_JOB": "b"}, 500, tmp_path)] == [101]


def test_what_ray_start_started_is_left_alone_with_all_below_it(tmp_path: Path) -> None:
    tree = ProcTree(tmp_path)
    ray = "/usr/lib/python3/site-packages/ray"
    tree.process(101, 1, "bash", "train.sh", environ=TOLD)
    tree.process(102, 101, command="raylet", environ=TOLD)
    tree.process(103, 102, environ=TOLD)
    for pid, arguments in (
        (104, [f"{ray}/dashboard/dashboard.py", "--host=127.0.0.1"]),
        (105, ["-u", f"{ray}/_private/log_monitor.py"]),
        (106, [f"{ray}/autoscaler/_private/monitor.py"]),
        (107, ["-m", "ray.util.client.server", "--port=10001"]),
    ):
        tree.process(pid, 101, "python", *arguments, environ=TOLD)
    tree.process(108, 101, "python", "train.py", environ=TOLD)
    assert {one.pid for one in descendants(101, tmp_path)} == {108}
    assert [one.pid for one in orphans(TOLD, 0, tmp_path)] == [101, 108]
