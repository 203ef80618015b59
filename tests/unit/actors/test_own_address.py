"""Which cluster a training process belongs to."""

from __future__ import annotations

import sys
from types import SimpleNamespace
from typing import Any

import pytest

from ray_sentinel.actors.deployment import background


class Client:
    """``ray.util.client.ray`` of a driver that is connected."""

    def __init__(self, **worker: Any) -> None:
        self._worker = SimpleNamespace(**worker)

    def is_connected(self) -> bool:
        return True

    def get_context(self) -> Any:
        return SimpleNamespace(client_worker=self._worker)


@pytest.mark.parametrize(
    ("worker", "address"),
    [({"_conn_str": "10.0.0.1:10001"}, "ray://10.0.0.1:10001"), ({}, "")],
    ids=["connected", "another version of Ray"],
)
def test_a_driver_of_ray_client_belongs_to_the_cluster_that_it_is_connected_to(
    monkeypatch: pytest.MonkeyPatch, worker: dict[str, str], address: str
) -> None:
    connected = SimpleNamespace(
        is_initialized=lambda: True,
        util=SimpleNamespace(client=SimpleNamespace(ray=Client(**worker))),
    )
    monkeypatch.setitem(sys.modules, "ray", connected)
    assert background.own_address() == address
