"""A job that tells its secrets dies of it: none of them is in what the watch keeps and shows."""

from __future__ import annotations

import contextlib
import gzip
import os
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ray_sentinel.model.incident import Incident
from tests.support.planted_secrets import PEM
from tests.support.ray_cluster import RayCluster, Watched
from tests.support.waiting import eventually
from tests.support.watched_job import rank_environ

pytestmark = pytest.mark.integration

PROGRAM = Path(__file__).parents[2] / "support/telling_rank.py"
TOLD = {
    "TOLD_IN_OUTPUT": "kQ7vT2mX9zLp4WcR8nYb",
    "TOLD_IN_URL": "pw-in-url-7fG2",
    "TOLD_IN_CALL": "call me by my key",
    "TOLD_IN_DICT": "it's a dict 9",
    "WANDB_API_KEY": "5d41402abc4b2a76b9719d911017c592aa11bb22",
}
ARGUMENTS = {"--hf-token": "words of a token", "--password=": "pass word 12"}
ACTOR = "hf_" + "Zx9Yw8Vu7Ts6Rq5Po4Nm3Lk2"
KEY_LINE = PEM.splitlines()[1]
SECRETS = [*TOLD.values(), *ARGUMENTS.values(), ACTOR, KEY_LINE]


@contextlib.contextmanager
def telling(job: str, folder: Path) -> Iterator[list[subprocess.Popen[bytes]]]:
    words = [item for pair in ARGUMENTS.items() for item in pair]
    argv = [*words[:2], words[2] + words[3]]
    ranks = []
    for rank in range(2):
        environ = {**rank_environ(job, rank, 2), **TOLD, "TOLD_KEY": PEM}
        with open(folder / f"rank-{rank}.err", "wb") as errors:
            command = [sys.executable, str(PROGRAM), str(rank), *argv]
            ranks.append(subprocess.Popen(command, env=environ, stderr=errors))
    try:
        yield ranks
    finally:
        for rank in ranks:
            rank.kill()
            rank.wait()


def kept(folder: Path) -> dict[str, bytes]:
    """Every file below ``folder``."""
    files = {}
    for path in folder.rglob("*"):
        if path.is_file():
            data = path.read_bytes()
            files[str(path)] = gzip.decompress(data) if path.suffix == ".gz" else data
    return files


def test_nothing_of_it_is_kept_or_shown(ray_cluster: RayCluster, tmp_path: Path) -> None:
    log, told, job = tmp_path / "log", tmp_path / "told", f"telling-{os.getpid()}"
    script = tmp_path / "tell.sh"
    script.write_text(f"#!/bin/sh\ncat >> {told}\nenv >> {told}\n")
    script.chmod(0o755)
    ray_cluster.up(log, RAY_SENTINEL_NOTIFY__COMMAND=str(script))
    try:
        with ray_cluster.connected() as ray, telling(job, tmp_path):
            actor = ray.remote(_Idle).options(name=f"worker {ACTOR}", num_cpus=0).remote()
            ray.get(actor.ping.remote(), timeout=60)
            watched = Watched(ray)
            incident = eventually(lambda: _explained(watched, job), "it is explained", 60.0)
            eventually(lambda: told.exists() and b"explained" in told.read_bytes(), "a notice")
            shown = {
                "status --json": ray_cluster.run("status", "--json").stdout.encode(),
                "incidents --json": ray_cluster.run("incidents", "--json").stdout.encode(),
                "the notices": told.read_bytes(),
            }
            link = ray_cluster.run("status", "--link").stdout.strip()
            page, _, token = link.partition("?token=")
            for path in ("status", "incidents", f"incidents/{incident.id}"):
                request = urllib.request.Request(f"{page}api/v1/{path}")
                request.add_header("Authorization", f"Bearer {token}")
                with urllib.request.urlopen(request, timeout=30) as answer:
                    shown[path] = answer.read()
            ray.kill(actor)
    finally:
        ray_cluster.down()
    files = kept(log)
    assert any("events" in name for name in files)
    assert any(name.endswith("incident.json") for name in files)
    told_of = b"".join(shown.values())
    assert b"ConnectionError" in told_of, "the exception itself is told"
    assert b"telling_rank.py 1 --hf-token ***" in b"".join(files.values())
    for where, data in {**files, **shown}.items():
        for secret in SECRETS:
            assert secret.encode() not in data, (where, secret)


class _Idle:
    def ping(self) -> int:
        return os.getpid()


def _explained(watched: Watched, job: str) -> Incident | None:
    found: Any = watched.ask("incidents", tuple[Incident, ...])
    mine = [one for one in found if one.job == job and one.state in ("explained", "resolved")]
    return mine[0] if mine else None
