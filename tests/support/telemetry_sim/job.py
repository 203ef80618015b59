"""A job with its telemetry: what its agents would report, second by second."""

from __future__ import annotations

import random
from dataclasses import dataclass, field

from ray_sentinel.config import Config
from ray_sentinel.engine.engine import Engine
from ray_sentinel.engine.events import AnyEvent, SnapshotReceived, Tick
from ray_sentinel.engine.telemetry.series import EVERY
from ray_sentinel.model.alert import Alert
from ray_sentinel.model.identity import Node, ProcessId, Rank, RankId
from ray_sentinel.model.metrics import Event
from ray_sentinel.model.progress import ProcessState, Progress, RankSnapshot, Snapshot
from ray_sentinel.model.samples import SampleBatch
from tests.support.samples import sampled
from tests.support.telemetry_sim import ranges
from tests.support.telemetry_sim.ranges import CARDS, Range

START = 1_750_000_000.0
PER_NODE = 4


@dataclass
class Card:
    """One GPU's truth. ``state``: "work", "poll" or "rest"."""

    factor: float
    state: str = "work"
    power: float = 1.0
    clock: float = 1.0
    heat: float = 0.0
    throttle: str = ""
    gone: bool = False
    spikes: float = 0.0
    loaded: bool = True
    counters: dict[str, float] = field(default_factory=dict)


@dataclass
class Host:
    """One node's truth. Counters are absolute and old from boot."""

    name: str
    cards: list[Card]
    gauges: dict[str, float]
    counters: dict[str, float]
    rates: dict[str, float]
    sent: dict[str, float] = field(default_factory=dict)
    sampled_at: float = float("-inf")
    collected_at: float = 0.0
    events: list[Event] = field(default_factory=list)


class TelemetryJob:
    """``nodes`` × 4 ranks with a GPU each, at work from the first second on."""

    def __init__(
        self, seed: int, nodes: int = 2, *, told: bool = True, config: Config | None = None
    ) -> None:
        self.dice = random.Random(seed)
        self.engine = Engine(config)
        self.log: list[AnyEvent] = []
        self.now = START
        self.told = told
        self.model = self.dice.choice(sorted(CARDS))
        self.step_seconds = self.draw(ranges.STEP_SECONDS)
        self.every = self.draw(ranges.COLLECT_SECONDS)
        self.noise = self.draw(ranges.POWER_NOISE)
        self.scalars = {"loss": self.draw(ranges.LOSS), "grad_norm": self.draw(ranges.GRADIENT)}
        self.loss_noise = self.draw(ranges.LOSS_NOISE)
        self.factors = dict.fromkeys(self.scalars, 1.0)
        self.step = 0
        self.held = False
        self.slower = 1.0
        self.phase, self.phase_since = "train", START
        self.step_ended_at = START
        self.durations: list[float] = []
        self.sequence = 0
        self.alerts: dict[tuple[str, ...], Alert] = {}
        """Every alert that was ever raised, as it was first."""
        self.hosts = [self._host(f"node{index:02}") for index in range(nodes)]

    def draw(self, span: Range) -> float:
        return self.dice.uniform(*span)

    def _host(self, name: str) -> Host:
        old = {
            key: self.draw(ranges.BOOT_OLD)
            for key in (
                'hw_rdma_tx_retx_pkts_total{device="mlx5_0",port="1"}',
                'hw_rdma_tx_ack_timeout_total{device="mlx5_0",port="1"}',
                'hw_rdma_req_tx_retry_excd_err_total{device="mlx5_0",port="1"}',
                'hw_rdma_rx_cnp_pkts_total{device="mlx5_0",port="1"}',
                'hw_rdma_tx_bytes_total{device="mlx5_0",port="1"}',
                "hw_tcp_retransmits_total",
                "hw_oom_kills_total",
                'hw_net_tx_bytes_total{device="eth0"}',
            )
        }
        cards = [Card(1.0 + self.draw(ranges.CARD_OFFSET)) for _ in range(PER_NODE)]
        for card in cards:
            for metric in ("ecc_uncorrected", "pcie_nonfatal", "nvlink_errors"):
                card.counters[f"hw_gpu_{metric}_total"] = self.draw(ranges.BOOT_OLD)
        return Host(
            name=name,
            cards=cards,
            gauges={
                "hw_procs_running": self.draw(ranges.RUNNABLE),
                "hw_mem_total_bytes": 1e12,
                "hw_mem_available_bytes": 5e11,
                "hw_io_pressure_full_pct": 1.0,
                "hw_mem_pressure_full_pct": 0.0,
                'hw_rdma_port_state{device="mlx5_0",port="1"}': 1.0,
                'hw_rdma_port_state{device="mlx5_9",port="1"}': 0.0,
                'hw_disk_free_bytes{mount="/"}': 4e11,
                'hw_disk_total_bytes{mount="/"}': 1e12,
            },
            counters=old,
            rates={
                'hw_rdma_tx_retx_pkts_total{device="mlx5_0",port="1"}': self.draw(
                    ranges.RETRANSMITS_USUAL
                ),
                'hw_rdma_rx_cnp_pkts_total{device="mlx5_0",port="1"}': self.draw(ranges.CNP_USUAL),
                'hw_rdma_tx_bytes_total{device="mlx5_0",port="1"}': 5e9,
                "hw_tcp_retransmits_total": 1.0,
                'hw_net_tx_bytes_total{device="eth0"}': 1e6,
            },
        )

    def run(self, seconds: float) -> None:
        """Let time pass."""
        for _ in range(int(seconds)):
            self.now += 1.0
            self._steps()
            for host in self.hosts:
                for key, rate in host.rates.items():
                    host.counters[key] += rate * self.dice.uniform(0.5, 1.5)
                self._report(host)
            self._feed(Tick(time=self.now))
            self._note()

    def enter(self, phase: str) -> None:
        self.phase, self.phase_since = phase, self.now

    def _steps(self) -> None:
        length = self.step_seconds * self.slower
        while not self.held and self.phase == "train" and self.now - self.step_ended_at >= length:
            self.step_ended_at += length
            self.step += 1
            self.durations.append(length * self.dice.uniform(0.98, 1.02))
        if self.phase != "train":
            self.step_ended_at = self.now

    def _feed(self, event: AnyEvent) -> None:
        self.log.append(event)
        self.engine.handle(event)

    def _note(self) -> None:
        for alert in self.engine.alerts():
            self.alerts.setdefault(alert.key, alert)

    def _report(self, host: Host) -> None:
        if self.now - host.collected_at >= self.every:
            host.collected_at = self.now
            host.sent = self._gauges(host)
        samples: tuple[SampleBatch, ...] = ()
        if self.now - host.sampled_at >= EVERY:
            host.sampled_at, samples = self.now, sampled(host.sent)
        self.sequence += 1
        node = Node(id=host.name, host=host.name, address=f"10.1.1.{self.hosts.index(host)}")
        snapshot = Snapshot(
            node=node,
            time=self.now,
            sequence=self.sequence,
            ranks=tuple(self._rank(host, index) for index in range(PER_NODE)),
            samples=samples,
            events=tuple(host.events),
        )
        self._feed(SnapshotReceived(time=self.now, snapshot=snapshot))

    def _gauges(self, host: Host) -> dict[str, float]:
        found = {**host.gauges, **host.counters}
        for index, card in enumerate(host.cards):
            if not card.gone:
                found |= self._card(index, card)
        return found

    def _card(self, index: int, card: Card) -> dict[str, float]:
        work, poll, rest, clock, heat = CARDS[self.model]
        level = {"work": work, "poll": poll, "rest": rest}[card.state]
        power = sum(level) / 2.0 * card.factor * card.power * self.dice.gauss(1.0, self.noise)
        if self.dice.random() < card.spikes:
            power *= self.dice.choice((0.05, 3.0))
        gpu = f'gpu="{index}"'
        found = {
            f'hw_gpu_info{{{gpu},name="{self.model}"}}': 1.0,
            f"hw_gpu_power_watts{{{gpu}}}": power,
            f"hw_gpu_utilization_ratio{{{gpu}}}": 0.0 if card.state == "rest" else 1.0,
            f"hw_gpu_temperature_celsius{{{gpu}}}": sum(heat) / 2.0 + card.heat,
            f'hw_gpu_clock_mhz{{{gpu},type="sclk"}}': clock
            * card.clock
            * self.dice.gauss(1.0, 0.01),
            f"hw_gpu_vram_used_bytes{{{gpu}}}": 6e10 if card.loaded else 4e8,
        }
        for reason in ("hw_thermal_slowdown", "sw_power_cap", "gpu_idle"):
            key = f'hw_gpu_throttle_reason{{{gpu},reason="{reason}"}}'
            found[key] = float(reason == card.throttle)
        for name, value in card.counters.items():
            found[f"{name}{{{gpu}}}"] = value
        return found

    def _rank(self, host: Host, index: int) -> RankSnapshot:
        number = self.hosts.index(host) * PER_NODE + index
        values = {
            name: value * self.factors[name] * self.dice.gauss(1.0, self.loss_noise)
            for name, value in self.scalars.items()
            if self.factors[name] == self.factors[name]  # agents leave out what is no number
        }
        return RankSnapshot(
            rank=Rank(
                id=RankId("job", 0, number),
                process=ProcessId(host.name, 1000 + number, 1),
                node=host.name,
                world_size=len(self.hosts) * PER_NODE,
                gpus=(str(index),) if self.told else (),
                source="record",
            ),
            process=ProcessState(state="S", main_switches=self.step * 100),
            progress=Progress(
                step=self.step or None,
                step_ended_at=self.step_ended_at,
                step_seconds=self.durations[-1] if self.durations else None,
                recent_step_seconds=tuple(self.durations[-32:]),
                steps_recorded=self.step,
                phase=self.phase,
                phase_since=self.phase_since,
                scalars=values,
                attached_at=START,
            ),
        )
