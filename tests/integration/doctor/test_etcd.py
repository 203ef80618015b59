"""The doctor's word on a real etcd: dead, alive, full, with leftovers; its remedies are run."""

from __future__ import annotations

import os
import shlex
import subprocess
import urllib.error
from pathlib import Path

import pytest

from tests.support.doctor import run_doctor
from tests.support.etcd_server import etcd
from tests.support.parts import require
from tests.support.waiting import eventually

pytestmark = pytest.mark.integration

NEW, OLD = "/torch/elastic/rendezvous", "/torchelastic/p2p"


def ask(endpoint: str) -> tuple[int, list[dict[str, str]]]:
    code, found = run_doctor(
        *("--only", "etcd", "--rdzv-endpoint", endpoint, "--rdzv-id", "job-7"),
        *("--rdzv-backend", "etcd-v2"),
    )
    return code, found["etcd"]


def settled(endpoint: str) -> tuple[int, list[dict[str, str]]]:
    """The same, once it is healthy again: on a busy machine it loses its own vote for a moment."""

    def healthy() -> tuple[int, list[dict[str, str]]] | None:
        told = ask(endpoint)
        return None if "not healthy" in told[1][0]["seen"] else told

    return eventually(healthy, "etcd is healthy", 60.0)


def obey(remedy: str) -> None:
    """Do as a remedy says, up to its alternative."""
    command = shlex.split(remedy.partition(", or")[0])
    environ = {**os.environ, "ETCDCTL_API": "3"}
    subprocess.run([require(command[0]), *command[1:]], check=True, timeout=30, env=environ)


def test_a_dead_one_and_a_live_one(tmp_path: Path) -> None:
    with etcd(tmp_path, "--enable-v2") as server:
        code, found = ask(server.endpoint)
        assert (code, [result["outcome"] for result in found]) == (0, ["ok"])
        assert "etcd 3." in found[0]["seen"]
    code, found = ask(server.endpoint)
    assert code == 1
    assert "not healthy" in found[0]["seen"]
    assert "refused" in found[0]["seen"].lower()


def test_one_that_is_full(tmp_path: Path) -> None:
    with etcd(tmp_path, "--enable-v2", "--quota-backend-bytes", "65536") as server:
        with pytest.raises(urllib.error.HTTPError):
            server.fill()
        code, found = ask(server.endpoint)
    assert (code, found[0]["outcome"]) == (1, "failure")
    assert "not healthy" in found[0]["seen"]


@pytest.mark.parametrize(
    ("keys", "seen"),
    [
        ((f"{NEW}/job-7",), "1 key of an earlier run"),
        ((f"{NEW}/job-7/a", f"{NEW}/job-7/b"), "2 keys of an earlier run"),
    ],
)
def test_leftovers_are_removed_as_it_says_and_nothing_else(
    tmp_path: Path, keys: tuple[str, ...], seen: str
) -> None:
    with etcd(tmp_path, "--enable-v2") as server:
        for key in (*keys, f"{NEW}/job-70", "/torch/elasticity", "/other/key"):
            server.put(key)
        code, found = settled(server.endpoint)
        assert (code, found[0]["outcome"]) == (1, "failure")
        assert seen in found[0]["seen"]
        obey(found[0]["remedy"])
        code, found = settled(server.endpoint)
        # job-70 may be running: it is told, and was not touched.
        assert (code, found[0]["outcome"]) == (1, "warning")
        assert "1 key of other runs" in found[0]["seen"]
        assert f"{NEW}/job-70" in found[0]["seen"]


def test_leftovers_in_the_store_of_the_old_api(tmp_path: Path) -> None:
    with etcd(tmp_path, "--enable-v2") as server:
        server.put_old(f"{OLD}/run_job-7/rdzv/active_version")
        code, found = settled(server.endpoint)
        assert (code, found[0]["outcome"]) == (1, "failure")
        obey(found[0]["remedy"])
        assert settled(server.endpoint)[0] == 0


def test_one_without_the_api_that_torch_needs(tmp_path: Path) -> None:
    with etcd(tmp_path) as server:
        code, found = ask(server.endpoint)
    assert code == 1
    assert "--enable-v2" in found[-1]["remedy"]
