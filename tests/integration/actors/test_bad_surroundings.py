"""What is missing, full, refused or broken on real nodes: said, and the rest goes on."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
import sys
import textwrap
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.parts import lacking
from tests.support.placed_ranks import start_rank_on
from tests.support.ray_cluster import RayCluster, Watched
from tests.support.small_disk import small_disk as mounted
from tests.support.waiting import eventually
from tests.support.watched_job import WatchedJob, culprits

pytestmark = pytest.mark.integration

NO_PY_SPY, NO_PTRACE = "127.0.0.6", "127.0.0.7"
"""Nodes without the one and without the right to the other."""


@contextlib.contextmanager
def node_with_python(cluster: RayCluster, address: str, python: Path) -> Iterator[None]:
    """One more node, whose workers run another interpreter and find no programs on PATH."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "executable", str(python))
        patch.setenv("PATH", "/usr/bin:/bin")
        cluster.add(address)
    try:
        yield
    finally:
        cluster.retire(address)


@pytest.fixture(scope="class")
def watched(ray_cluster: RayCluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Watched]:
    """All nodes, and two that lack something."""
    folder = tmp_path_factory.mktemp("odd")
    nodes = {NO_PY_SPY: bare_python(folder / "venv"), NO_PTRACE: python_without_ptrace(folder)}
    with contextlib.ExitStack() as undo:
        for address, python in nodes.items():
            undo.enter_context(node_with_python(ray_cluster, address, python))
        ray_cluster.up(folder / "log")
        undo.callback(ray_cluster.down)
        yield Watched(undo.enter_context(ray_cluster.connected()), folder / "log")


def bare_python(folder: Path) -> Path:
    """An interpreter that imports what ours can, and has no programs beside it."""
    subprocess.run(
        [sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True, timeout=60
    )
    (site,) = folder.glob("lib/python*/site-packages")
    entries = [entry for entry in sys.path if entry.endswith("site-packages")]
    lines = [f"import site; site.addsitedir({entry!r})\n" for entry in entries]
    (site / "ours.pth").write_text("".join(lines))
    return folder / "bin/python"


def may_lose_rights() -> bool:
    return os.geteuid() == 0 and shutil.which("setpriv") is not None


def python_without_ptrace(folder: Path) -> Path:
    """An interpreter that may not trace; our own where a right cannot be taken away."""
    if not may_lose_rights():
        return Path(sys.executable)
    python = folder / "python"
    python.write_text(
        "#!/bin/sh\n"
        "exec setpriv --bounding-set=-sys_ptrace --inh-caps=-sys_ptrace "
        f'{sys.executable} "$@"\n'
    )
    python.chmod(0o755)
    return python


def stacks_of(job: WatchedJob, pid: int) -> str:
    """What the bundle holds of a process, once it is written."""

    def bundle() -> Path | None:
        return next((Path(one.bundle) for one in job.incidents() if one.bundle), None)

    folder = eventually(bundle, "the bundle", 60.0)
    return "".join(file.read_text() for file in folder.glob(f"*_{pid}.txt"))


@contextlib.contextmanager
def ranks_on(address: str, ray: Any, job: WatchedJob, *faults: str) -> Iterator[list[int]]:
    """Ranks of a job on one node, one with each fault: their pids, in the ranks' order."""
    launchers = [
        start_rank_on(ray, address, job.name, fault, rank) for rank, fault in enumerate(faults)
    ]
    pids = ray.get([launcher.start.remote() for launcher in launchers])
    try:
        yield pids
    finally:
        ray.get([launcher.end.remote() for launcher in launchers])


def assert_the_gil_is_seen_held(
    cluster: RayCluster, watched: Watched, address: str, faults: tuple[str, str], note: str
) -> None:
    """Rank 1 of such a job on that node is named, with its stacks, and ``note`` is said."""
    job = WatchedJob(cluster, watched, f"gil-on-{address}")
    with ranks_on(address, watched.ray, job, *faults) as pids:
        incident = job.verdict()
        assert incident.kind == "gil-held"
        assert culprits(incident) == [(1, pids[1])]
        assert note in " ".join(watched.status().notes)
        assert "hold_lock_asleep" in stacks_of(job, pids[1])


class TestOnOddNodes:
    def test_a_node_without_py_spy_takes_the_ranks_own_stacks(
        self, ray_cluster: RayCluster, watched: Watched
    ) -> None:
        assert shutil.which("py-spy", path="/usr/bin:/bin") is None
        faults = ("sleep", "gil-sleep-armed")
        note = "py-spy is not installed on this node"
        assert_the_gil_is_seen_held(ray_cluster, watched, NO_PY_SPY, faults, note)

    def test_the_kernel_refuses_to_let_the_agent_trace(
        self, ray_cluster: RayCluster, watched: Watched
    ) -> None:
        if not may_lose_rights():
            lacking("needs root and setpriv (util-linux) to take a capability away")
        faults = ("closed-sleep", "closed-gil-armed")
        assert_the_gil_is_seen_held(ray_cluster, watched, NO_PTRACE, faults, "CAP_SYS_PTRACE")

    def test_a_rank_whose_shared_memory_is_full_is_watched_all_the_same(
        self, ray_cluster: RayCluster, watched: Watched
    ) -> None:
        fill = (
            "mount -t tmpfs -o size=64k none /dev/shm && "
            "dd if=/dev/zero of=/dev/shm/full bs=1k count=64 2>/dev/null; "
            'exec "$@"'
        )
        if subprocess.run(["unshare", "-m", "true"], capture_output=True, check=False).returncode:
            lacking("needs the right to a mount namespace of its own: run as root")
        with WatchedJob(ray_cluster, watched, "shm-full") as job:
            job.start("none", before=("unshare", "-m", "sh", "-c", fill, "sh"))
            job.until_training(1)


COLLECTORS = {
    "raises.py": """
        class Raises(Collector):
            name = "raises"
        raise RuntimeError("at import")
        """,
    "garbage.py": """
        class Garbage(Collector):
            name = "garbage"
            interval = 0.5
            def collect(self):
                for handle in range(3, 20):
                    try:
                        os.write(handle, b"\\xff\\x00 garbage " * 50)
                    except OSError:
                        continue
                return iter(())
        """,
    "sleeps.py": """
        class Sleeps(Collector):
            name = "sleeps"
            interval = 0.5
            deadline = 1.0
            def collect(self):
                time.sleep(10**6)
                return iter(())
        """,
    "forks.py": """
        class Forks(Collector):
            name = "forks"
            interval = 0.5
            deadline = 1.0
            def collect(self):
                subprocess.Popen(["sleep", "1000123"], start_new_session=True)
                time.sleep(10**6)
                return iter(())
        """,
    "thief.py": """
        LOAD = Metric("hw_load1", "gauge", "Another one's.")
        class Thief(Collector):
            name = "thief"
            interval = 0.5
            metrics = (LOAD,)
            def collect(self):
                yield LOAD(-77.0)
        """,
}
HEAD = "import os, subprocess, time\nfrom ray_sentinel.api import Collector, Metric\n"


def test_collectors_that_do_everything_wrong(ray_cluster: RayCluster, tmp_path: Path) -> None:
    plugins = tmp_path / "log/plugins"
    plugins.mkdir(parents=True)
    for name, code in COLLECTORS.items():
        (plugins / name).write_text(HEAD + textwrap.dedent(code))
    ray_cluster.up(tmp_path / "log")
    try:
        with ray_cluster.connected() as ray:
            watched = Watched(ray)

            def told() -> bool:
                for node in watched.status().nodes:
                    states = {collector.name: collector for collector in node.collectors}
                    if not {"raises", "garbage", "sleeps", "forks", "thief"} <= states.keys():
                        return False
                    if any(states[name].success for name in ("raises", "sleeps", "forks")):
                        return False
                    if not states["sleeps"].timeouts or not states["forks"].timeouts:
                        return False
                    if not states["host"].success:
                        return False
                return True

            try:
                eventually(told, "each is told, on every node, and the host's goes on", 60.0)
            except AssertionError:
                print([(n.host, n.collectors) for n in watched.status().nodes])
                raise
            for node in watched.status().nodes:
                with urllib.request.urlopen(node.metrics_url, timeout=5) as answer:
                    page = answer.read().decode()
                assert 'hw_load1{host="' in page
                assert "-77" not in page, "the name belongs to the host collector"
    finally:
        ray_cluster.down()
    eventually(lambda: not processes("sleep\0" + "1000123"), "no child is left", 10.0)


def processes(command: str) -> list[int]:
    found = []
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            with contextlib.suppress(OSError):
                if command in (folder / "cmdline").read_text():
                    found.append(int(folder.name))
    return found


@pytest.fixture
def small(tmp_path: Path) -> Iterator[Path]:
    """A file system of 4 MiB."""
    with mounted(tmp_path / "small", "4m") as folder:
        yield folder


@pytest.mark.timeout(300)
def test_a_log_folder_that_fills_up(ray_cluster: RayCluster, small: Path, tmp_path: Path) -> None:
    ray_cluster.up(small / "log")
    try:
        with ray_cluster.connected() as ray:
            watched = Watched(ray)
            with WatchedJob(ray_cluster, watched, "disk-full") as job:
                job.start("none", "sigstop", at=100)
                job.until_training(2)
                with contextlib.suppress(OSError), open(small / "filler", "wb", 0) as filler:
                    while True:
                        filler.write(b"x" * 4096)
                incident = job.verdict()
                assert incident.kind == "rank-stopped"
                assert culprits(incident) == [(1, job.ranks[1].pid)]
                eventually(
                    lambda: any("cannot be written" in n for n in watched.status().notes),
                    "it is said that the log cannot be written",
                )
                (small / "filler").unlink()
                eventually(
                    lambda: not any("cannot be written" in n for n in watched.status().notes),
                    "it is written again",
                    120.0,
                )
    finally:
        ray_cluster.down()


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("[hang]\nsilence_secs = 3\n", "silence_seconds"),
        ('[agent]\nport = "many"\n', "agent.port"),
        ("[hang]\nsilence_seconds = -3\n", "hang.silence_seconds"),
        ("not toml at all", ""),
        ('[rules."rank.stoped"]\nx = 1\n', "rank.stopped"),
    ],
)
def test_a_wrong_configuration_names_key_and_file(
    ray_cluster: RayCluster, tmp_path: Path, text: str, meant: str
) -> None:
    file = tmp_path / "sentinel.toml"
    file.write_text(text)
    ended = ray_cluster.run("up", "--config", str(file), "--json")
    assert ended.returncode == 2, ended.stdout + ended.stderr
    error = json.loads(ended.stdout)["error"]
    assert meant in error
    if "rules" not in text:
        assert str(file) in error
