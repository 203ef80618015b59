"""GPUs on the page of a real coordinator, whose agents read a driver's library of ours."""

from __future__ import annotations

import json
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.browser import Browser, rendered
from tests.support.nvml_library import STAND_IN, build
from tests.support.ray_cluster import RayCluster
from tests.support.waiting import eventually

pytestmark = pytest.mark.integration


@pytest.fixture
def link(tmp_path: Path) -> Iterator[str]:
    """The page of a cluster of two nodes with two GPUs each."""
    library = tmp_path / "library"
    library.mkdir()
    build(library)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("LD_LIBRARY_PATH", str(library))
        patch.setenv("NVML_STAND_IN", str(STAND_IN / "h100.txt"))
        cluster = RayCluster(addresses=("127.0.0.2",))
    try:
        cluster.up(tmp_path / "log")
        yield cluster.run("status", "--link").stdout.strip()
        cluster.down()
    finally:
        cluster.stop()


def gpus(link: str, quantity: str) -> list[dict[str, Any]]:
    url, _, token = link.partition("?token=")
    request = urllib.request.Request(f"{url}api/v1/gpus?quantity={quantity}")
    request.add_header("Authorization", f"Bearer {token}")
    with urllib.request.urlopen(request, timeout=30) as answer:
        return list(json.load(answer)["rows"])


def test_the_page_has_a_heat_map_of_what_the_driver_says(link: str, chromium: Browser) -> None:
    eventually(lambda: len(gpus(link, "power")) == 2, "both nodes tell of their GPUs", 60.0)
    expected = {
        "utilisation": [0.97, 1.0],
        "memory": [0.8, 0.0],
        "power": [312.0, 300.0],
        "temperature": [45.0, 47.0],
    }
    for quantity, values in expected.items():
        for row in gpus(link, quantity):
            assert (row["gpus"], row["values"]) == (["0", "1"], values)
            assert all(old < 30 for old in row["ages"])
    document = rendered(chromium, link)
    assert document.count(">97</td>") == 2
    assert "4 GPUs on 2 nodes" in document
