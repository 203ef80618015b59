"""Interfaces, visits, clocks, ranks' variables and the rendezvous, as they are judged."""

from __future__ import annotations

import pytest

from ray_sentinel.doctor.check import ProbeResult
from ray_sentinel.doctor.checks.clock import ClockCheck
from ray_sentinel.doctor.checks.interfaces import InterfacesCheck
from ray_sentinel.doctor.checks.interfaces import InterfacesFacts as Have
from ray_sentinel.doctor.checks.rank_environment import RankEnvironmentCheck
from ray_sentinel.doctor.checks.rank_environment import RankEnvironmentFacts as Ranks
from ray_sentinel.doctor.checks.reachability import ReachabilityCheck
from ray_sentinel.doctor.checks.rendezvous import RendezvousCheck
from ray_sentinel.doctor.checks.rendezvous import RendezvousFacts as Met
from ray_sentinel.doctor.endpoint import meeting_point
from ray_sentinel.doctor.machine import Interface
from ray_sentinel.doctor.netnames import chosen
from ray_sentinel.doctor.peer_probe import NEIGHBOURS, whom_to_visit
from ray_sentinel.doctor.plan import RunPlan


def card(
    name: str, kind: str = "ethernet", up: bool = True, address: str = "10.0.0.1"
) -> Interface:
    return Interface(name=name, up=up, kind=kind, addresses=(address,) if address else ())


LO = card("lo", "loopback", address="127.0.0.1")
HAVE = (
    LO,
    card("docker0", "virtual ethernet"),
    card("eth0"),
    card("eth1"),
    card("ib0", "infiniband"),
)


@pytest.mark.parametrize(
    ("wish", "names"),
    [
        ("eth", ["eth0", "eth1"]),
        ("=eth1", ["eth1"]),
        ("eth1,eth0", ["eth1", "eth0"]),
        ("^docker,lo", ["eth0", "eth1", "ib0"]),
        ("^=docker0,lo", ["eth0", "eth1", "ib0"]),
        ("", ["ib0"]),
        ("wlan", []),
        ("=eth", []),
    ],
)
def test_nccl_s_way_of_choosing(wish: str, names: list[str]) -> None:
    assert [item.name for item in chosen(wish, HAVE)] == names


def test_where_nobody_says_nccl_takes_the_first_kind_that_there_is() -> None:
    left = list(HAVE)
    for names in (["ib0"], ["eth0", "eth1"], ["docker0"], ["lo"], []):
        assert [item.name for item in chosen("", left)] == names
        left = [item for item in left if item.name not in names]


def test_nodes_of_which_one_lacks_what_nccl_would_take_first(judged) -> None:
    have = {"a": Have(HAVE, {}), "b": Have((LO, card("eth0")), {})}
    [found] = judged(InterfacesCheck(), have)
    assert found.outcome == "failure"
    assert "infiniband (a: ib0)" in found.seen


def test_an_interface_that_is_missing_on_one_node(judged) -> None:
    wish = {"NCCL_SOCKET_IFNAME": "eth1"}
    [found] = judged(
        InterfacesCheck(), {"a": Have(HAVE, wish), "b": Have((LO, card("eth0")), wish)}
    )
    assert (found.outcome, found.host) == ("failure", "b")
    assert "there is no interface eth1" in found.seen
    assert "eth0" in found.seen


def test_gloo_takes_whole_names_only(judged) -> None:
    assert (
        judged(InterfacesCheck(), {"a": Have(HAVE, {"NCCL_SOCKET_IFNAME": "eth"})})[0].outcome
        == "ok"
    )
    [found] = judged(InterfacesCheck(), {"a": Have(HAVE, {"GLOO_SOCKET_IFNAME": "eth"})})
    assert found.outcome == "failure"


def test_an_interface_that_is_down(judged) -> None:
    down = (LO, card("eth0", up=False))
    [found] = judged(InterfacesCheck(), {"a": Have(down, {"TP_SOCKET_IFNAME": "eth0"})})
    assert found.remedy == "ip link set eth0 up"


def test_a_variable_that_only_some_nodes_have(judged) -> None:
    results = judged(
        InterfacesCheck(), {"a": Have(HAVE, {"GLOO_SOCKET_IFNAME": "eth0"}), "b": Have(HAVE, {})}
    )
    assert [r.outcome for r in results] == ["failure"]
    assert "not set on b" in results[0].seen


def test_ethernet_here_and_infiniband_there(judged) -> None:
    results = judged(
        InterfacesCheck(),
        {
            "a": Have(HAVE, {"NCCL_SOCKET_IFNAME": "ib0"}),
            "b": Have(HAVE, {"NCCL_SOCKET_IFNAME": "eth0"}),
        },
    )
    assert any("different kinds" in r.seen and r.outcome == "failure" for r in results)


def visits(offsets: dict[str, float], seconds: float = 0.001) -> tuple[ProbeResult, ...]:
    return tuple(
        ProbeResult(visitor=a, host=b, place=b, seconds=seconds, ahead=offsets[b] - offsets[a])
        for a in offsets
        for b in offsets
        if a != b
    )


def test_the_node_whose_clock_is_wrong_is_named_and_not_the_others(judged) -> None:
    for wrong in "abc":
        offsets = dict.fromkeys("abc", 0.0) | {wrong: -7.5}
        [found] = judged(ClockCheck(), {}, visits=visits(offsets))
        assert (found.host, found.outcome) == (wrong, "failure")
        assert "7.500 s behind" in found.seen


def test_a_slow_network_is_no_skew(judged) -> None:
    offsets = {"a": 0.0, "b": 0.3, "c": 0.0}
    [found] = judged(ClockCheck(), {}, visits=visits(offsets, seconds=0.6))
    assert found.outcome == "ok"


def test_a_node_that_nobody_reaches_is_named_once(judged, cluster_of) -> None:
    bad = tuple(
        ProbeResult(visitor=v, host="c", place="10.0.0.3:9", problem="no answer") for v in "ab"
    )
    good = tuple(ProbeResult(visitor="c", host=h, place=h, seconds=0.001, ahead=0.0) for h in "ab")
    [found] = judged(ReachabilityCheck(), {}, cluster=cluster_of(*"abc"), visits=bad + good)
    assert (found.host, found.outcome) == ("c", "failure")


def test_one_way_that_is_blocked_is_told_from_a_dead_node(judged, cluster_of) -> None:
    bad = (ProbeResult(visitor="a", host="c", place="10.0.0.3:9", problem="no answer"),)
    good = (ProbeResult(visitor="b", host="c", place="c", seconds=0.001, ahead=0.0),)
    [found] = judged(ReachabilityCheck(), {}, cluster=cluster_of(*"abc"), visits=bad + good)
    assert "a does not reach c" in found.seen


def test_everybody_is_visited_by_several_and_nobody_by_all() -> None:
    hosts = [f"n{i}" for i in range(1000)]
    plan = {host: whom_to_visit(hosts, host) for host in hosts}
    assert max(map(len, plan.values())) <= NEIGHBOURS + 1
    assert all("n0" in whom for host, whom in plan.items() if host != "n0")
    assert all(host not in whom for host, whom in plan.items())


FULL = {
    "RANK": "0",
    "LOCAL_RANK": "0",
    "WORLD_SIZE": "2",
    "MASTER_ADDR": "a",
    "MASTER_PORT": "29500",
}


def test_no_variables_is_well_and_half_of_them_is_not(judged) -> None:
    assert judged(RankEnvironmentCheck(), {"a": Ranks({}, ("10.0.0.1",))})[0].outcome == "skipped"
    half = Ranks({"RANK": "0"}, ("10.0.0.1",))
    [found] = judged(RankEnvironmentCheck(), {"a": half})
    assert "LOCAL_RANK" in found.seen
    assert "torchrun" in found.remedy


def test_master_addr_must_be_the_node_of_rank_0(judged) -> None:
    first = Ranks(FULL, ("10.0.0.1",), ("10.0.0.2",))
    second = Ranks({**FULL, "RANK": "1"}, ("10.0.0.2",), ("10.0.0.2",))
    results = judged(RankEnvironmentCheck(), {"a": first, "b": second})
    assert [r.remedy for r in results] == ["export MASTER_ADDR=10.0.0.1"]


@pytest.mark.parametrize(
    ("name", "value", "says"),
    [
        ("MASTER_PORT", "99999999999", "is no port"),
        ("MASTER_PORT", "0", "is no port"),
        ("MASTER_PORT", "\u0663", "is no number"),
        ("RANK", "\u00b2", "is no number"),
        ("RANK", "2", "not below WORLD_SIZE"),
        ("WORLD_SIZE", "1" * 5000, "is no number"),
    ],
)
def test_values_that_no_rank_can_use(judged, name: str, value: str, says: str) -> None:
    results = judged(RankEnvironmentCheck(), {"a": Ranks({**FULL, name: value}, ("10.0.0.1",))})
    assert [r.outcome for r in results] == ["failure"], results
    assert says in results[0].seen


def test_localhost_on_two_nodes(judged) -> None:
    here = {**FULL, "MASTER_ADDR": "localhost"}
    nodes = {h: Ranks(here, ("127.0.0.1", f"10.0.0.{h}"), ("127.0.0.1",)) for h in "12"}
    results = judged(RankEnvironmentCheck(), nodes)
    assert {r.host for r in results if r.outcome == "failure"} == {"1", "2"}


def met(endpoint: str = "a:29400", run: str = "x", **facts: object) -> Met:
    wish = meeting_point(RunPlan(rdzv_endpoint=endpoint, rdzv_id=run), {})
    return Met(wish, **{"resolves": True, **facts})  # type: ignore[arg-type]


def test_a_c10d_endpoint_is_not_there_before_the_run(judged) -> None:
    nodes = {
        "a": met(own=True, problem="Connection refused"),
        "b": met(problem="Connection refused"),
    }
    assert [r.outcome for r in judged(RendezvousCheck(), nodes)] == ["ok"]


def test_a_c10d_endpoint_that_an_old_run_holds(judged) -> None:
    results = judged(RendezvousCheck(), {"a": met(own=True, answers=True)})
    assert [r.outcome for r in results] == ["warning"]


def test_an_etcd_must_be_there(judged) -> None:
    results = judged(RendezvousCheck(), {"a": met("e:2379", problem="Connection refused")})
    assert results[0].outcome == "failure"
    assert "etcd" in results[0].remedy


def test_different_run_ids(judged) -> None:
    nodes = {"a": met(run="x", answers=True), "b": met(run="y", answers=True)}
    assert "--rdzv-id differs" in judged(RendezvousCheck(), nodes)[0].seen


@pytest.mark.parametrize(
    ("endpoint", "host", "port", "backend"),
    [
        ("node:29500", "node", 29500, "c10d"),
        ("node", "node", 29400, "c10d"),
        ("[fd00::1]:29500", "fd00::1", 29500, "c10d"),
        ("http://etcd:2379", "etcd", 2379, "etcd-v2"),
        ("node:port", "node", 0, "c10d"),
    ],
)
def test_endpoints(endpoint: str, host: str, port: int, backend: str) -> None:
    wish = meeting_point(RunPlan(rdzv_endpoint=endpoint), {})
    assert (wish.host, wish.port, wish.backend) == (host, port, backend)
    assert bool(wish.problem) == (port == 0)
