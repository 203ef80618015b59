"""Errors that network cards count, and TCP connections that were given up."""

from __future__ import annotations

import numpy as np
import pytest

from ray_sentinel.diagnose.examine import examine
from ray_sentinel.diagnose.playbooks import named
from ray_sentinel.diagnose.series import Floats
from ray_sentinel.model.diagnosis import Diagnosis
from ray_sentinel.store.event_files.memory import MemorySource

BEGIN, CELLS = 1.7e9, 360
TIMES = BEGIN + 10.0 * np.arange(CELLS)
NAMES = ("hw_net_rx_errors_total", "hw_net_tx_errors_total", "node_network_receive_errs_total")


def diagnosed(name: str, errors: dict[str, Floats], port: Floats | None = None) -> Diagnosis:
    """Four hosts with a clean RDMA port each, and what their cards counted since boot."""
    source = MemorySource()
    source.add("tb_step", {"host": "n0"}, TIMES, np.arange(CELLS) // 2)
    for host in ("n0", "n1", "n2", "n3"):
        counted = 500.0 + np.cumsum(errors.get(host, np.zeros(CELLS)))
        device = {} if name.startswith("hw_tcp") else {"device": "eth0"}
        source.add(name, {"host": host, **device}, TIMES, counted)
        labels = {"host": host, "device": "mlx5_0", "port": "1"}
        state = np.ones(CELLS) if port is None or host != "n3" else port
        source.add("hw_rdma_port_state", labels, TIMES, state)
    return examine(source, chosen=named("network-health")).diagnosis


def sometimes(seed: int, rate: float, first: int = 100, last: int = CELLS) -> Floats:
    values = np.random.default_rng(seed).poisson(rate, CELLS).astype(float)
    values[:first] = values[last:] = 0
    return values


@pytest.mark.parametrize("name", NAMES)
def test_a_card_that_goes_on_counting_errors_is_named(name: str) -> None:
    found = diagnosed(name, {"n2": sometimes(1, 2.0)})
    assert (found.outcome, found.cause) == ("found", "nic-errors")
    assert [(one.host, one.device) for one in found.culprits] == [("n2", "eth0")]
    assert "o effect on the step time" in found.root_cause


@pytest.mark.parametrize(
    "errors",
    [
        {},
        {"n2": sometimes(1, 0.01)},
        {"n2": sometimes(1, 50.0, first=100, last=110)},
        {host: sometimes(seed, 1.0) for seed, host in enumerate(("n0", "n1", "n2", "n3"))},
    ],
    ids=["none", "a few", "a short burst", "everywhere"],
)
def test_what_is_usual_or_passing_is_not(errors: dict[str, Floats]) -> None:
    found = diagnosed(NAMES[0], errors)
    assert (found.outcome, found.culprits) == ("healthy", ())


def test_a_port_that_went_down_comes_first() -> None:
    port = np.where(np.arange(CELLS) > 200, 0.0, 1.0)
    found = diagnosed(NAMES[0], {"n2": sometimes(1, 2.0)}, port)
    assert [one.host for one in found.culprits] == ["n3"]


def test_connections_that_were_given_up_are_told_and_blamed_for_nothing() -> None:
    found = diagnosed("hw_tcp_abort_on_timeout_total", {"n1": sometimes(3, 0.5)})
    assert (found.outcome, found.culprits) == ("healthy", ())
    (fact,) = [fact for fact in found.evidence if "aborted on timeout" in fact.text]
    assert (fact.host, fact.value) == ("n1", sometimes(3, 0.5)[1:].sum())
