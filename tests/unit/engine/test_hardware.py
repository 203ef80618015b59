"""Broken devices and ports in a verdict: named beside ranks, and only where they came first."""

from __future__ import annotations

import msgspec
import pytest

from ray_sentinel.engine.events import AnyEvent, SnapshotReceived
from ray_sentinel.model.identity import ProcessId, Rank, RankId
from ray_sentinel.model.incident import Verdict
from ray_sentinel.model.metrics import Event
from tests.support.engine_sim import Sim, SimRank
from tests.support.samples import sampled

PORT = 'hw_rdma_port_state{device="mlx5_0",port="1"}'


class TelemetrySim(Sim):
    """A simulated job whose agents send series and events too."""

    def __init__(self, **how: object) -> None:
        super().__init__(**how)  # type: ignore[arg-type]
        self.node_gauges: dict[str, dict[str, float]] = {n.id: {PORT: 1.0} for n in self.nodes}
        self.told: dict[str, tuple[Event, ...]] = {}

    def feed(self, event: AnyEvent) -> None:
        if isinstance(event, SnapshotReceived):
            node = event.snapshot.node.id
            snapshot = msgspec.structs.replace(
                event.snapshot,
                samples=sampled(self.node_gauges[node]),
                events=self.told.get(node, ()),
            )
            event = msgspec.structs.replace(event, snapshot=snapshot)
        super().feed(event)

    def hang_alike(self) -> None:
        """All ranks wait in a collective, and nothing tells them apart."""
        for rank in self.ranks:
            self.stick(rank.number, where=("main (train.py:1)", "all_reduce (c10d.py:9)"))
            rank.activity, rank.waits = "collective-wait", True


def verdict(sim: Sim) -> Verdict:
    (incident,) = sim.incidents()
    assert incident.verdict is not None
    return incident.verdict


def test_a_port_that_went_down_first_is_the_culprit() -> None:
    sim = TelemetrySim()
    sim.run(40)
    sim.node_gauges["n1"] = {PORT: 0.0}
    sim.run(2)
    sim.hang_alike()
    sim.run(60)
    found = verdict(sim)
    assert found.kind == "network"
    assert [(c.rank, c.host) for c in found.culprits] == [(None, "host1")]
    assert "mlx5_0/1" in found.culprits[0].reason
    assert found.next_steps


def test_a_port_that_goes_down_long_after_is_no_cause() -> None:
    sim = TelemetrySim()
    sim.run(40)
    sim.hang_alike()
    sim.run(25)
    sim.node_gauges["n1"] = {PORT: 0.0}
    sim.run(60)
    found = verdict(sim)
    assert found.kind == "unknown"
    assert not found.culprits


def test_ports_of_several_hosts_accuse_none() -> None:
    sim = TelemetrySim()
    sim.run(40)
    for node in ("n0", "n2"):
        sim.node_gauges[node] = {PORT: 0.0}
    sim.run(2)
    sim.hang_alike()
    sim.run(60)
    assert verdict(sim).kind == "unknown"


def lose_gpu(sim: TelemetrySim, gpu: str = "3") -> None:
    """The kernel says that a GPU of the last host is lost."""
    sim.told["n2"] = (
        Event(
            time=sim.now,
            kind="kernel.gpu_lost",
            message="NVRM: GPU 0000:3b:00.0: GPU has fallen off the bus.",
            attributes={"gpu": gpu},
        ),
    )


class GpuSim(TelemetrySim):
    """In which every rank has the GPU of its own number."""

    def _identity(self, rank: SimRank) -> Rank:
        return msgspec.structs.replace(super()._identity(rank), gpus=(str(rank.number),))


@pytest.mark.parametrize(("number", "kind"), [(5, "device-lost"), (4, "device-stuck")])
def test_a_rank_stuck_at_its_device_is_told_from_one_whose_device_was_lost(
    number: int, kind: str
) -> None:
    sim = GpuSim()
    sim.run(40)
    lose_gpu(sim, "5")
    sim.stick(number, activity="device-wait")
    sim.run(60)
    assert (sim.named(), verdict(sim).kind) == ([number], kind)


def test_a_gpu_that_was_lost_is_the_culprit() -> None:
    sim = TelemetrySim()
    sim.run(40)
    lose_gpu(sim)
    sim.hang_alike()
    sim.run(60)
    found = verdict(sim)
    assert found.kind == "device-lost"
    assert [(c.host, c.gpu) for c in found.culprits] == [("host2", "3")]


def test_a_rank_that_stands_apart_is_named_all_the_same() -> None:
    sim = TelemetrySim()
    sim.run(40)
    sim.node_gauges["n0"] = {PORT: 0.0}
    sim.run(2)
    sim.stick(5)
    sim.run(40)
    assert sim.named() == [5]
    assert any(item.source == "telemetry" for item in verdict(sim).evidence)


class NeighbourSim(GpuSim):
    """In which another job's rank 0 has GPU 7 of the last host."""

    def feed(self, event: AnyEvent) -> None:
        if isinstance(event, SnapshotReceived) and event.snapshot.node.id == "n2":
            mine = event.snapshot.ranks[0]
            rank = msgspec.structs.replace(
                mine.rank,
                id=RankId("other", 0, 0),
                process=ProcessId("host2", 77, 1),
                gpus=("7",),
                world_size=1,
            )
            ranks = (*event.snapshot.ranks, msgspec.structs.replace(mine, rank=rank))
            snapshot = msgspec.structs.replace(event.snapshot, ranks=ranks)
            event = msgspec.structs.replace(event, snapshot=snapshot)
        super().feed(event)


def test_the_gpu_of_another_job_is_no_fault_of_this_one() -> None:
    sim = NeighbourSim()
    sim.run(40)
    lose_gpu(sim, "7")
    sim.hang_alike()
    sim.run(60)
    verdicts = [found.verdict for found in sim.incidents() if found.job == "job"]
    assert [(found.kind, found.culprits) for found in verdicts if found] == [("unknown", ())]
