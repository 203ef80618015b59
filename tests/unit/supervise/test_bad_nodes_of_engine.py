"""What the engine's own verdicts say of nodes, read back from JSON as the page serves them."""

from __future__ import annotations

import json

import msgspec
import pytest

from ray_sentinel.engine.events import AnyEvent, SnapshotReceived
from ray_sentinel.model.identity import Rank
from ray_sentinel.model.metrics import Event
from ray_sentinel.report.contract import incident_json
from ray_sentinel.supervise.bad_nodes import BadNode, of_incidents
from ray_sentinel.supervised_run import incident_records
from tests.support.engine_sim import Sim, SimRank


class GpuSim(Sim):
    """Every rank has the GPU of its own number; the kernel of n2 may say that one is lost."""

    lost: tuple[Event, ...] = ()

    def _identity(self, rank: SimRank) -> Rank:
        return msgspec.structs.replace(super()._identity(rank), gpus=(str(rank.number),))

    def feed(self, event: AnyEvent) -> None:
        if isinstance(event, SnapshotReceived) and event.snapshot.node.id == "n2":
            snapshot = msgspec.structs.replace(event.snapshot, events=self.lost)
            event = msgspec.structs.replace(event, snapshot=snapshot)
        super().feed(event)

    def lose_gpu(self, gpu: str) -> None:
        said = "NVRM: GPU 0000:3b:00.0: GPU has fallen off the bus."
        lost = Event(time=self.now, kind="kernel.gpu_lost", message=said, attributes={"gpu": gpu})
        self.lost = (lost,)


def blamed(sim: Sim) -> tuple[BadNode, ...]:
    (incident,) = sim.incidents()
    return of_incidents(incident_records([json.loads(incident_json(incident))]), incident.job)


def test_a_lost_node() -> None:
    sim = Sim()
    sim.run(30)
    sim.dead_nodes.add("n1")
    for rank in sim.ranks:
        rank.stuck = rank.node == "n1"
    sim.run(20)
    assert [node.host for node in blamed(sim)] == ["host1"]


@pytest.mark.parametrize(("gpu", "hosts"), [("5", ["host2"]), ("", [])])
def test_a_rank_that_waits_for_its_device(gpu: str, hosts: list[str]) -> None:
    sim = GpuSim()
    sim.run(40)
    if gpu:
        sim.lose_gpu(gpu)
    sim.stick(5, activity="device-wait")
    sim.run(60)
    assert [node.host for node in blamed(sim)] == hosts
    assert all("fallen off the bus" in node.why for node in blamed(sim))


@pytest.mark.parametrize(
    ("wchan", "hosts"), [("rpc_wait_bit_killable", []), ("amdgpu_fence_wait_any", ["host0"])]
)
def test_a_rank_that_is_blocked_in_the_kernel(wchan: str, hosts: list[str]) -> None:
    sim = Sim()
    sim.run(30)
    sim.stick(0, state="D", wchan=wchan)
    sim.run(30)
    assert [node.host for node in blamed(sim)] == hosts


def test_ranks_that_ended_or_stand_still() -> None:
    ended = Sim()
    ended.run(30)
    ended.end(4, signal=9)
    ended.run(20)
    assert blamed(ended) == ()
    still = Sim()
    still.run(30)
    still.stick(4)
    still.run(40)
    assert blamed(still) == ()
