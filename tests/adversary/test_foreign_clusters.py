"""No program of ours joins a cluster that another user put in its way."""

from __future__ import annotations

import subprocess
from pathlib import Path

from ray_sentinel.actors.deployment import cluster
from ray_sentinel.actors.raylets import raylets, trusted_raylets, untrusted_raylets
from tests.support.other_user import as_nobody
from tests.support.parts import needs_root
from tests.support.waiting import eventually

pytestmark = needs_root()

SOMEBODY = 4321
ADDRESS = "127.0.0.1:9"


NAMED = "echo raylet > /proc/$$/comm; read line"


def test_a_raylet_of_somebody_else_leads_nobody_to_its_cluster() -> None:
    words = ["raylet", "-c", NAMED, "raylet", f"--gcs-address={ADDRESS}"]
    with subprocess.Popen(
        words, executable="/bin/sh", user=SOMEBODY, stdin=subprocess.PIPE, env={}
    ) as process:
        try:
            eventually(lambda: raylets().get(process.pid), "it looks like a raylet")
            assert ADDRESS not in cluster.addresses_of_raylets()
            assert process.pid not in trusted_raylets()
            assert any(f"--address {ADDRESS}" in one for one in untrusted_raylets())
            assert ADDRESS not in as_nobody(cluster.addresses_of_raylets)
        finally:
            process.kill()


def plant(folder: Path) -> None:
    (folder / cluster.CURRENT).write_text(ADDRESS)


def test_an_address_that_somebody_else_left_is_not_used(open_folder: Path) -> None:
    as_nobody(plant, open_folder)
    assert cluster.current_cluster(open_folder) == ""
    (open_folder / cluster.CURRENT).unlink()
    plant(open_folder)
    assert cluster.current_cluster(open_folder) == ADDRESS
