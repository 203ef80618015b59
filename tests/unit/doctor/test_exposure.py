"""Ray's own servers and the internet; a sum over all nodes."""

from __future__ import annotations

import importlib.util
import os
import socket
import threading

import pytest

from ray_sentinel.doctor.check import CheckInput, CheckResult
from ray_sentinel.doctor.checks.collective import CollectiveCheck
from ray_sentinel.doctor.checks.exposure import ExposureCheck, ExposureFacts, Offer
from ray_sentinel.doctor.collective import Reduced, reduce_here
from ray_sentinel.doctor.plan import RunPlan
from tests.support.parts import lacking


def exposed(address: str, *public: str, what: str = "dashboard") -> list[CheckResult]:
    facts = ExposureFacts((Offer(what, address, 8265),), public)
    return list(ExposureCheck().judge(CheckInput(plan=RunPlan(), seen={"head": facts})))


@pytest.mark.parametrize("address", ["127.0.0.1", "10.0.0.4", "192.168.1.9", "::1", "fd00::1"])
def test_private_addresses_are_well(address: str) -> None:
    assert [one.outcome for one in exposed(address, "8.8.4.4")] == ["ok"]


@pytest.mark.parametrize(
    ("address", "public"), [("8.8.4.4", ()), ("0.0.0.0", ("8.8.4.4",)), ("::", ("2001:4860::1",))]
)
def test_a_public_address_is_a_failure_with_its_remedy(
    address: str, public: tuple[str, ...]
) -> None:
    (result,) = exposed(address, *public)
    assert (result.outcome, result.host) == ("failure", "head")
    assert "--dashboard-host=127.0.0.1" in result.remedy
    (store,) = exposed(address, *public, what="control store")
    assert "--node-ip-address" in store.remedy


def test_all_addresses_of_a_node_without_a_public_one_are_well() -> None:
    assert [one.outcome for one in exposed("0.0.0.0")] == ["ok"]


def judged(*reduced: Reduced, collective: bool = True) -> list[CheckResult]:
    case = CheckInput(plan=RunPlan(collective=collective), seen={}, reduced=reduced)
    return list(CollectiveCheck().judge(case))


def test_no_sum_is_made_unless_it_is_asked_for() -> None:
    assert [one.outcome for one in judged(collective=False)] == ["skipped"]
    assert [one.outcome for one in judged()] == ["skipped"]


def test_nodes_whose_part_failed_are_named_and_backends_must_be_one() -> None:
    well = Reduced(host="a", backend="nccl", join_seconds=1.0, seconds=0.01)
    assert [one.outcome for one in judged(well)] == ["ok"]
    results = judged(well, Reduced(host="b", problem="no PyTorch: No module named 'torch'"))
    assert [(one.outcome, one.host) for one in results] == [("failure", "b")]
    assert results[0].remedy == "install PyTorch there"
    mixed = judged(well, Reduced(host="b", backend="gloo", join_seconds=1.0, seconds=0.01))
    assert [(one.outcome, one.host) for one in mixed] == [("failure", "b")]


@pytest.mark.timeout(180)
def test_a_real_sum_over_two_processes() -> None:
    if importlib.util.find_spec("torch") is None:
        lacking("PyTorch is missing: pip install torch")
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    found: dict[int, Reduced] = {}

    def part(rank: int) -> None:
        found[rank] = reduce_here(f"n{rank}", rank, 2, "127.0.0.1", port, os.environ)

    threads = [threading.Thread(target=part, args=(rank,)) for rank in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [found[rank].problem for rank in range(2)] == ["", ""]
    assert {one.backend for one in found.values()} == {"gloo"}
    assert all((one.seconds or 0) > 0 for one in found.values())
