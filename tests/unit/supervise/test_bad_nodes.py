"""Which nodes are bad: incidents and triage that blame a node, and those that do not."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from ray_sentinel.model.incident import Culprit, EvidenceItem, FaultKind, Incident, Verdict
from ray_sentinel.model.triage import FailureClass, LogCulprit, LogLine, Triage
from ray_sentinel.supervise.bad_nodes import BadNode, of_incidents, of_triage, unknown


def incident(
    kind: FaultKind, *culprits: Culprit, evidence: tuple[EvidenceItem, ...] = (), **fields: Any
) -> Incident:
    verdict = Verdict(kind=kind, summary="", culprits=culprits, evidence=evidence)
    known = {"id": "7", "job": "job", "attempt": 0, "kind": kind, "severity": "critical",
             "state": "explained", "summary": "", "rule": "r", "suspected_at": 50.0}  # fmt: skip
    return Incident(**{**known, "verdict": verdict, **fields})


def culprit(rank: int | None = 3, host: str = "n3", **fields: Any) -> Culprit:
    return Culprit(**{"rank": rank, "host": host, "pid": 9, "reason": "a reason", **fields})


def hosts(*found: Incident, job: str = "job") -> list[str]:
    return [node.host for node in of_incidents(found, job)]


def test_a_lost_node_is_named_once_with_the_reason() -> None:
    both = incident("node-lost", culprit(2), culprit(3))
    assert of_incidents([both], "job") == (
        BadNode(host="n3", why="a reason (incident 7)", at=50.0),
    )


@pytest.mark.parametrize("state", ["suspected", "dismissed"])
def test_what_is_not_confirmed_blames_nobody(state: str) -> None:
    assert hosts(incident("node-lost", culprit(), state=state)) == []
    assert hosts(incident("node-lost", culprit(), verdict=None)) == []


def test_other_jobs_do_not_count() -> None:
    assert hosts(incident("node-lost", culprit()), job="other") == []


@pytest.mark.parametrize(
    "kind",
    ["rank-dead", "oom-killed", "rank-stopped", "gil-held", "host-stuck", "cpu-spin",
     "collective-mismatch", "device-stuck", "kernel-blocked", "slow", "unknown"],
)  # fmt: skip
def test_a_rank_alone_says_nothing_against_its_node(kind: FaultKind) -> None:
    stacks = EvidenceItem(source="stacks", text="cudaStreamSynchronize", rank=3, weight=2.0)
    assert hosts(incident(kind, culprit(), evidence=(stacks,))) == []


def test_telemetry_of_its_own_device_blames_the_node_however_the_rank_ended() -> None:
    broken = EvidenceItem(source="telemetry", text="n3 GPU 2: Xid 79", rank=3, weight=4.0)
    for kind in ("device-lost", "device-stuck", "rank-dead"):
        (node,) = of_incidents([incident(kind, culprit(), evidence=(broken,))], "job")
        assert node == BadNode(host="n3", why="n3 GPU 2: Xid 79 (incident 7)", at=50.0)
    assert hosts(incident("rank-dead", culprit(4, "n4"), evidence=(broken,))) == []
    later = EvidenceItem(source="telemetry", text="began after", rank=3, weight=0.0)
    assert hosts(incident("device-stuck", culprit(), evidence=(later,))) == []


def test_devices_and_ports_that_telemetry_names_itself() -> None:
    gpu = culprit(None, pid=None, gpu="2")
    assert hosts(incident("device-stuck", gpu)) == ["n3"]
    port = culprit(None, "n5", pid=None, reason="mlx5_0/1: is down")
    assert hosts(incident("network", port)) == ["n5"]
    assert hosts(incident("network", culprit(1, "a"), culprit(2, "b"))) == ["a"]


@pytest.mark.parametrize(
    ("function", "blamed"),
    [("nvidia_poll", True), ("_nv044501rm", True), ("amdgpu_fence_wait_any", True),
     ("kfd_wait_on_events", True), ("mlx5_cmd_exec", True), ("nfs_wait_bit_killable", False),
     ("folio_wait_bit_common", False), ("?", False)],
)  # fmt: skip
def test_a_blocked_rank_blames_a_driver_and_no_file_system(function: str, blamed: bool) -> None:
    seen = EvidenceItem(source="process", text=f"in state D for 5.0 s, in {function}", rank=3)
    assert hosts(incident("kernel-blocked", culprit(), evidence=(seen,))) == ["n3"] * blamed


def test_a_blocked_actor_blames_a_driver_too() -> None:
    blocked = culprit(None, role="Rollout", actor="Rollout 2", reason="in state D, in nvidia_poll")
    assert hosts(incident("kernel-blocked", blocked)) == ["n3"]
    assert hosts(incident("actor-stuck", blocked)) == []


def triage(kind: FailureClass, *nodes: str, line: str = "", **fields: Any) -> Triage:
    made = Triage(
        kind=kind,
        outcome="failed",
        summary="it failed",
        confidence=0.9,
        culprits=tuple(LogCulprit(node=node, reason="its GPU is lost") for node in nodes),
        evidence=(LogLine(file="output.log", line=1, text=line),),
    )
    return msgspec.structs.replace(made, **fields)


def test_what_the_output_blames() -> None:
    (node,) = of_triage(triage("gpu-lost", "node-7"))
    assert node == BadNode(host="node-7", why="gpu-lost: its GPU is lost")
    assert [one.host for one in of_triage(triage("link-down", "n3"))] == ["n3"]
    assert [one.host for one in of_triage(triage("node-fail", "10.0.0.7", "", "10.0.0.7"))] == [
        "10.0.0.7"
    ]
    assert of_triage(triage("python-exception", "node-7")) == ()
    assert of_triage(triage("gpu-lost", "node-7", confidence=0.4)) == ()
    assert of_triage(triage("gpu-lost", "node-7", signature="cuda-device-gone")) == ()
    assert of_triage(triage("gpu-lost")) == ()


def test_a_name_that_stands_for_several_nodes_is_no_name() -> None:
    assert of_triage(triage("node-fail", "node", line="Node failure on node[7-9,11]")) == ()
    assert len(of_triage(triage("node-fail", "node", line="Node failure on node"))) == 1


@pytest.mark.parametrize(
    "name", ["", "a b", "x;reboot", "$(reboot)", "--help", "a,b", "a\nb", "localhost", "x" * 300]
)
def test_what_is_no_name_of_a_host_never_reaches_a_command(name: str) -> None:
    assert of_triage(triage("node-fail", name)) == ()
    assert hosts(incident("node-lost", culprit(host=name))) == []


def test_a_node_is_known_by_its_short_and_its_full_name() -> None:
    known = [BadNode(host="n7", why=""), BadNode(host="10.0.0.1", why="")]
    found = [BadNode(host=host, why="") for host in ("N7.lan", "10.0.0.2", "10.0.0.1", "n8", "n8")]
    assert [node.host for node in unknown(found, known)] == ["10.0.0.2", "n8"]
