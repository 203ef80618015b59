"""What is missing, full, refused or broken on real nodes: said, and the rest goes on."""

from __future__ import annotations

import contextlib
import json
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.parts import lacking
from tests.support.ray_cluster import RayCluster, Watched, eventually
from tests.support.watched_job import WatchedJob, culprits

pytestmark = pytest.mark.integration


def test_a_rank_whose_shared_memory_is_full_is_watched_all_the_same(
    ray_cluster: RayCluster, watched: Watched
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


@pytest.fixture
def small(tmp_path: Path) -> Iterator[Path]:
    """A file system of 4 MiB."""
    folder = tmp_path / "small"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=4m", "none", str(folder)]
    if subprocess.run(mount, capture_output=True, check=False, timeout=10).returncode:
        lacking("needs the right to mount: run as root")
    yield folder
    # Processes that were just killed may still have a file open there.
    eventually(
        lambda: not subprocess.run(["umount", str(folder)], check=False, timeout=10).returncode,
        "it can be unmounted",
    )


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
                    60.0,
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
