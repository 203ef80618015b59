"""``attach()`` on a real cluster: in ranks, in drivers, inside trials, and where nothing is."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.ray_cluster import RayCluster, Watched
from tests.support.waiting import eventually

pytestmark = pytest.mark.integration

RANK = Path(__file__).parents[2] / "support/shell_rank.py"


class RankProcess:
    """A rank in a process of its own."""

    def __init__(self, environ: dict[str, str], job: str, rank: int = 0, size: int = 1) -> None:
        self.process = subprocess.Popen(
            [sys.executable, str(RANK), job],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**environ, "RANK": str(rank), "WORLD_SIZE": str(size)},
        )
        self.said: dict[str, Any] = self.read()

    def read(self) -> dict[str, Any]:
        assert self.process.stdout is not None
        return json.loads(self.process.stdout.readline())

    def order(self, word: str) -> dict[str, Any]:
        assert self.process.stdin is not None
        self.process.stdin.write(word + "\n")
        self.process.stdin.flush()
        return self.read()


@contextlib.contextmanager
def ranks(environ: dict[str, str], job: str, count: int) -> Iterator[list[RankProcess]]:
    started = [RankProcess(environ, job, rank, count) for rank in range(count)]
    try:
        yield started
    finally:
        for rank in started:
            rank.process.kill()
            rank.process.wait()


@pytest.fixture
def quiet_cluster(ray_cluster: RayCluster) -> Iterator[RayCluster]:
    """Unwatched before, and unwatched after."""
    yield ray_cluster
    ray_cluster.down()


def test_ranks_attach_and_the_cluster_is_watched(quiet_cluster: RayCluster, tmp_path: Path) -> None:
    environ = quiet_cluster.environ(RAY_SENTINEL_LOG_DIR=str(tmp_path))
    with ranks(environ, "attach-test", 3) as started:
        for rank in started:
            assert rank.said["again"], "the second call gives the same Sentinel"
            assert not rank.said["ray"], "a rank never loads Ray for us"
        assert started[0].order("wait") == {"ok": True, "problems": []}
        assert started[2].order("status")["nodes"] == 3
        with quiet_cluster.connected() as ray:
            watched = Watched(ray)

            def seen() -> Any:
                jobs = [job for job in watched.status().jobs if job.job == "attach-test"]
                return jobs and len(jobs[0].ranks) == 3 and (jobs[0].step or 0) > 3 and jobs[0]

            job = eventually(seen, "the job's three ranks take steps")
            assert {rank.pid for rank in job.ranks} == {rank.said["pid"] for rank in started}
            assert all(rank.attached for rank in job.ranks)
            assert job.world_size == 3


def run_python(code: str, environ: dict[str, str], **more: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)],
        capture_output=True,
        text=True,
        timeout=120,
        env={**environ, **more},
        check=False,
    )


def test_a_driver_with_an_environment_of_its_own(quiet_cluster: RayCluster, tmp_path: Path) -> None:
    (tmp_path / "work").mkdir()
    ended = run_python(
        f"""
        import json, ray, ray_sentinel
        ray.init(log_to_driver=False, runtime_env={{
            "env_vars": {{"FROM_DRIVER": "1", "RANK": "5"}},
            "working_dir": {str(tmp_path / "work")!r}}})
        sentinel = ray_sentinel.attach(config={{"log_dir": {str(tmp_path / "log")!r}}})
        assert sentinel.wait(60), sentinel.problems
        print(json.dumps([len(sentinel.status().nodes), [j.job for j in sentinel.status().jobs]]))
        """,
        quiet_cluster.environ(),
    )
    assert ended.returncode == 0, ended.stderr
    nodes, jobs = json.loads(ended.stdout.splitlines()[-1])
    assert nodes == 3
    assert "default" not in jobs, "the driver itself is no rank"
    with quiet_cluster.connected() as ray:
        for agent in Watched(ray).agents().values():
            variables = Path(f"/proc/{agent.pid}/environ").read_bytes()
            assert b"FROM_DRIVER" not in variables, "nothing of the driver's is inherited"
            assert b"\0RANK=5" not in variables


def test_inside_the_placement_group_of_a_trial(quiet_cluster: RayCluster, tmp_path: Path) -> None:
    ended = run_python(
        f"""
        import ray
        from ray.util.placement_group import placement_group, remove_placement_group
        from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy
        ray.init(log_to_driver=False)
        group = placement_group([{{"CPU": 1}}])
        @ray.remote(num_cpus=1)
        def trial():
            import ray_sentinel
            sentinel = ray_sentinel.attach(rank=0, config={{"log_dir": {str(tmp_path)!r}}})
            return sentinel.wait(60), sentinel.problems
        strategy = PlacementGroupSchedulingStrategy(
            group, placement_group_capture_child_tasks=True)
        print(ray.get(trial.options(scheduling_strategy=strategy).remote(), timeout=90))
        remove_placement_group(group)
        """,
        quiet_cluster.environ(),
    )
    assert ended.stdout.strip().endswith("(True, ())"), ended.stdout + ended.stderr
    # The trial, its group and its job are gone; what watches stays.
    with quiet_cluster.connected() as ray:
        watched = Watched(ray)
        eventually(
            lambda: len(watched.status().nodes) == 3 and not watched.status().unwatched,
            "all nodes are still watched",
        )


def test_without_a_cluster_training_goes_on(tmp_path: Path) -> None:
    ended = run_python(
        """
        import ray_sentinel
        sentinel = ray_sentinel.attach(job="alone", rank=0, world_size=1)
        assert not sentinel.wait(30)
        for n in range(5):
            sentinel.step(n)
        with sentinel.phase("checkpoint"):
            pass
        assert "127.0.0.1:9" in sentinel.problems[0], sentinel.problems
        try:
            sentinel.status()
        except ray_sentinel.errors.UnreachableError:
            print("unreachable")
        """,
        {"PATH": "/usr/bin:/bin", "RAY_ADDRESS": "127.0.0.1:9", "HOME": str(tmp_path)},
    )
    assert ended.stdout == "unreachable\n", ended.stdout + ended.stderr
    assert "no Ray cluster answers" in ended.stderr


def test_a_bad_configuration_is_said_and_only_raised_when_strict(tmp_path: Path) -> None:
    code = """
        import sys, ray_sentinel
        config = {{"hang": {{"silence_secs": 5}}}}
        sentinel = ray_sentinel.attach(rank=0, config=config, strict={strict})
        sentinel.step(1)
        print("went on")
        """
    environ = {"PATH": "/usr/bin:/bin", "RAY_ADDRESS": "127.0.0.1:9", "HOME": str(tmp_path)}
    lenient = run_python(code.format(strict=False), environ)
    assert lenient.stdout == "went on\n"
    assert "hang.silence_secs" in lenient.stderr
    assert "silence_seconds" in lenient.stderr
    strict = run_python(code.format(strict=True), environ)
    assert "ConfigError" in strict.stderr
    assert strict.returncode != 0


def test_a_head_without_cpus_and_several_nodes_on_its_address(tmp_path: Path) -> None:
    cluster = RayCluster(head_cpus=0, addresses=())
    try:
        head = cluster.address.split(":")[0]
        cluster.add(head)
        cluster.up(tmp_path)
        with cluster.connected() as ray:
            status = Watched(ray).status()
            assert [node.is_head for node in status.nodes] == [True, False]
            assert len({node.id for node in status.nodes}) == 2
            assert {node.address for node in status.nodes} == {head}
            urls = {node.metrics_url for node in status.nodes}
            assert len(urls) == 2, "each has a port of its own"
        cluster.down()
    finally:
        cluster.stop()


def test_a_training_in_a_deleted_folder_or_with_bad_settings_goes_on(tmp_path: Path) -> None:
    folder = tmp_path / "gone"
    script = (
        f"import os; os.chdir({str(folder)!r}); os.rmdir({str(folder)!r})\n"
        "import ray_sentinel\n"
        "sentinel = ray_sentinel.attach(job='deleted', rank=0, world_size=1)\n"
        "sentinel.step()\n"
        "print('goes on')\n"
    )
    told = {"RAY_SENTINEL_RECORD_DIR": str(tmp_path), "RAY_SENTINEL_HANG": "9"}
    told["RAY_ADDRESS"] = "127.0.0.1:1"  # else that of other tests would be watched
    for extra in ({}, {"RAY_SENTINEL_HANG__SILENCE_SECONDS": "1"}):
        folder.mkdir()
        ended = subprocess.run(
            [sys.executable, "-c", script],
            env={**os.environ, **told, **extra},
            capture_output=True,
            text=True,
            timeout=60,
            check=True,
        )
        assert ended.stdout == "goes on\n"
        assert "the defaults are used" in ended.stderr
