"""Simulated nodes of a training, and the reports that their agents send.

Each has eight ranks, GPUs and RDMA ports. What it sends is picked, packed and masked by the agent's
own code; only the ranks and the values are made up.
"""

from __future__ import annotations

from collections.abc import Callable

from ray_sentinel.actors.agent.reporting import NodeSampling, ReportPace
from ray_sentinel.actors.messages import AgentReport, Receipt
from ray_sentinel.actors.metrics import KEY_SERIES
from ray_sentinel.actors.report_deltas import DeltaSender
from ray_sentinel.model.identity import Node, ProcessId, Rank, RankId
from ray_sentinel.model.metrics import Family, Metric
from ray_sentinel.model.progress import ProcessState, Progress, RankSnapshot, Snapshot

START = 1_750_000_000.0
PER_NODE = 8
STEPS = tuple(1.0 + 0.01 * (step * 7919 % 10_007) / 10_007 for step in range(5_000))
"""Seconds of a rank's steps; each rank begins at a place of its own."""
RING = 16

GPU = ("gpu",)
PORT = ("device", "port")
INFO = Metric("hw_gpu_info", "gauge", "", ("gpu", "name"))
CLOCK = Metric("hw_gpu_clock_mhz", "gauge", "", ("gpu", "type"))
THROTTLED = Metric("hw_gpu_throttle_reason", "gauge", "", ("gpu", "reason"))
REASONS = ("hw_thermal_slowdown", "sw_power_cap", "gpu_idle", "hw_slowdown")
OF_GPU: dict[str, Callable[[int, int], float]] = {
    "hw_gpu_utilization_ratio": lambda second, gpu: 1.0,
    "hw_gpu_power_watts": lambda second, gpu: 600.0 + (second * 7 + gpu) % 13,
    "hw_gpu_temperature_celsius": lambda second, gpu: 60.0,
    "hw_gpu_vram_used_bytes": lambda second, gpu: 6e10,
    "hw_gpu_ecc_uncorrected_total": lambda second, gpu: 3.0,
}
OF_PORT: dict[str, Callable[[int], float]] = {
    "hw_rdma_tx_retx_pkts_total": lambda second: 1e6 + second,
    "hw_rdma_tx_ack_timeout_total": lambda second: 1e6,
    "hw_rdma_rx_cnp_pkts_total": lambda second: 1e6 + second,
    "hw_rdma_tx_bytes_total": lambda second: 1e6 + 1e9 * second,
    "hw_rdma_port_state": lambda second: 1.0,
}
OF_HOST = {"hw_procs_running": 20.0, "hw_mem_total_bytes": 1e12, "hw_mem_available_bytes": 5e11}


def hardware(second: int) -> tuple[Family, ...]:
    """131 series: what the collectors of a healthy node report."""
    places = range(PER_NODE)
    found = [
        Family(INFO, tuple(INFO(1.0, str(gpu), "NVIDIA H100 80GB HBM3") for gpu in places)),
        Family(CLOCK, tuple(CLOCK(1980.0, str(gpu), "sclk") for gpu in places)),
        Family(
            THROTTLED, tuple(THROTTLED(0.0, str(gpu), why) for gpu in places for why in REASONS)
        ),
    ]
    for name, of_gpu in OF_GPU.items():
        metric = Metric(name, "gauge", "", GPU)
        found.append(Family(metric, tuple(metric(of_gpu(second, g), str(g)) for g in places)))
    for name, of_port in OF_PORT.items():
        metric = Metric(name, "gauge", "", PORT)
        value = of_port(second)
        found.append(Family(metric, tuple(metric(value, f"mlx5_{port}", "1") for port in places)))
    for name, value in OF_HOST.items():
        metric = Metric(name, "gauge", "")
        found.append(Family(metric, (metric(value),)))
    return tuple(found)


NAMES = [name for name in KEY_SERIES if name.startswith("hw_")]


def devices(series: int, second: int) -> tuple[Family, ...]:
    """``series`` key series with a device each, all of whose values move."""
    each = -(-series // len(NAMES))
    found = []
    for place, name in enumerate(NAMES):
        metric = Metric(name, "gauge", "", ("device",))
        count = max(0, min(each, series - place * each))
        values = (metric(1e6 * place + second * (i + 1), f"mlx5_{i}") for i in range(count))
        found.append(Family(metric, tuple(values)))
    return tuple(found)


class SimulatedNode:
    """A node of a job of ``world`` ranks, and its agent's sampling."""

    def __init__(self, number: int, world: int) -> None:
        self.node = Node(
            id=f"n{number}", host=f"host{number}", address=f"10.0.{number >> 8}.{number & 255}"
        )
        self.ranks = tuple(
            Rank(
                id=RankId("job", 0, rank),
                process=ProcessId(self.node.host, 1000 + rank, 1),
                node=self.node.id,
                world_size=world,
                gpus=(str(rank % PER_NODE),),
            )
            for rank in range(number * PER_NODE, (number + 1) * PER_NODE)
        )
        self.incarnation = f"life{number}"
        self.sampling = NodeSampling(self.incarnation)
        self.sender = DeltaSender()
        self.pace = ReportPace(1.0, phase=0.618 * number % 1.0)
        self.targets_version = 0
        self.stopped: frozenset[int] = frozenset()
        """Ranks whose processes are stopped."""
        self.hung_from: int | None = None
        """Second whose step no rank ends."""

    def snapshot(
        self, second: int, families: tuple[Family, ...], *, ranks: bool = True, start: float = START
    ) -> Snapshot:
        """What it sends ``second`` seconds after ``start``; ``families`` are its collectors', of
        which its agent picks samples where it is time."""
        return Snapshot(
            node=self.node,
            time=start + second,
            sequence=second,
            ranks=self._ranks(second, start) if ranks else (),
            samples=self.sampling.due(families, families, second) if families else (),
            metrics_url=f"http://{self.node.address}:9400/metrics",
            interval=self.pace.interval,
        )

    def due(self, second: int, start: float) -> bool:
        """Whether its agent reports what it sees in that second."""
        return self.pace.due(self._ranks(second, start), (), second, owes=False)

    def _ranks(self, second: int, start: float) -> tuple[RankSnapshot, ...]:
        done = second if self.hung_from is None else min(second, self.hung_from - 1)
        return tuple(
            RankSnapshot(
                rank=rank,
                process=_stopped if rank.id.rank in self.stopped else _process(rank.id.rank, done),
                progress=_progress(rank.id.rank, done, start),
            )
            for rank in self.ranks
        )

    def report(self, snapshot: Snapshot) -> bytes:
        """The same as the message that the coordinator gets."""
        return self.sender.message(
            AgentReport(
                snapshot=snapshot,
                incarnation=self.incarnation,
                targets_version=self.targets_version,
            )
        )

    def accept(self, receipt: Receipt) -> None:
        """The coordinator's answer; the next report is whole where this one was not taken."""
        self.sender.answered(receipt)
        self.sampling.accept(receipt)
        self.pace.set_interval(receipt.interval)
        self.targets_version = receipt.targets_version


_stopped = ProcessState(state="T")


def _process(rank: int, done: int) -> ProcessState:
    """A rank at work: each of them has figures of its own."""
    return ProcessState(
        state="S",
        wchan="futex_wait_queue",
        cpu_seconds=round(done * 0.97 + rank * 3.31, 2),
        main_cpu_seconds=done * 0.713 + rank / 3,
        main_switches=done * 431 + rank * 977,
        main_sleeps=done * 399 + rank * 771,
        threads=93,
        rss_bytes=5_000_000_000 + 4096 * ((done + rank) * 7919 % 1_000),
        io_bytes=1_000_000_000 + done * 52_417 + rank * 10_007,
        interpreter="runs",
    )


def _progress(rank: int, done: int, start: float) -> Progress:
    place = (rank * 61 + done) % (len(STEPS) - RING)
    took = STEPS[place : place + RING]
    return Progress(
        step=done,
        step_ended_at=start + done - took[-1] / 100,
        step_seconds=took[-1],
        recent_step_seconds=took,
        steps_recorded=done,
        phase="train",
        phase_since=start,
        scalars={"loss": 2.0 / took[0], "grad_norm": took[1] / 3},
        companion_tid=4_000_000 + rank,
        attached_at=start,
    )
