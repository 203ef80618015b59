"""A training job played forward: what every host and GPU would have shown at each moment.

Arrays are (T,) for the job, (H, T) for hosts, (H, G, T) for GPUs, (H, D, T) for RDMA devices.
Faults change ``speed``, ``level`` and the rest before ``play`` fills in what follows from them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np

from tests.support.tsdb_scenarios import ranges
from tests.support.tsdb_scenarios.ranges import Model, Range

Series = tuple[str, dict[str, str], np.ndarray, np.ndarray]
WORK, WAIT, REST, SAVE, GONE = 0, 1, 2, 3, 4


@dataclass
class World:
    """One job. ``style`` is "ours" (utilisation as ``hw_gpu_*``) or "ray" (by Ray, with ip)."""

    seed: int
    hosts: int = 4
    gpus: int = 8
    devices: int = 4
    minutes: float = 60.0
    model: str = "MI355X"
    style: str = "ray"
    begin: float = 1_760_000_000.0
    checkpoints: bool = True
    slowdown: np.ndarray = field(init=False)
    halt: float | None = None
    """Seconds after the begin at which steps stop for good."""
    notes: dict[str, object] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.rng = np.random.default_rng(self.seed)
        self.interval = float(self.rng.choice(ranges.INTERVAL))
        self.t = np.arange(0.0, self.minutes * 60.0, self.interval)
        self.times = self.begin + self.t
        self.card: Model = ranges.MODELS[self.model]
        self.names = [f"node{index + 1:03d}" for index in range(self.hosts)]
        self.step_seconds = self.draw(ranges.STEP_SECONDS)
        self.startup = self.draw(ranges.STARTUP)
        self.period = int(self.rng.choice(ranges.CHECKPOINT_STEPS))
        self.save_seconds = self.draw(ranges.CHECKPOINT_SECONDS)
        self.writers = list(range(max(1, self.hosts // 3)))
        shape = (self.hosts, self.gpus, self.t.size)
        self.slowdown = np.ones(self.t.size)
        self.state = np.full(shape, WORK)
        self.power_factor = np.ones(shape)
        self.temp_extra = np.zeros(shape)
        self.clock_factor = np.ones(shape)
        self.util_extra = np.zeros(shape)
        self.alive = np.ones((self.hosts, self.t.size), dtype=bool)
        self.gpu_alive = np.ones(shape, dtype=bool)
        self.memory_extra = np.zeros((self.hosts, self.t.size))
        self.gauges: dict[str, np.ndarray] = {}
        self.rates: dict[str, np.ndarray] = {}
        self.rdma: dict[str, np.ndarray] = {}
        self.errors: dict[str, np.ndarray] = {}
        self.port_state = np.ones((self.hosts, self.devices, self.t.size))
        self.saves: list[tuple[float, float, int]] = []
        self.scalars: dict[str, np.ndarray] = {}
        self.skip: set[str] = set()
        self.late: dict[str, float] = {}
        self.extra: list[Series] = []
        self.transforms: list[object] = []
        self.drawn = False
        self._host_gauges()

    def draw(self, span: Range) -> float:
        """One number from a range."""
        return float(self.rng.uniform(*span))

    def any_gpu(self) -> tuple[int, int]:
        """A host and one of its GPUs, drawn."""
        return int(self.rng.integers(self.hosts)), int(self.rng.integers(self.gpus))

    def after(self, seconds: float, until: float = np.inf) -> np.ndarray:
        """(T,) the cells from ``seconds`` after the begin to ``until``."""
        return (self.t >= seconds) & (self.t < until)

    def device_zeros(self) -> np.ndarray:
        """(H, D, T) of nothing."""
        return np.zeros((self.hosts, self.devices, self.t.size))

    def _noise(self, shape: tuple[int, ...], spread: float) -> np.ndarray:
        return self.rng.normal(0.0, spread, shape)

    def _host_gauges(self) -> None:
        shape = (self.hosts, self.t.size)
        level = self.draw(ranges.PROCS_RUNNING)
        self.gauges["hw_procs_running"] = np.maximum(self.rng.poisson(level, shape), 1.0)
        self.gauges["hw_procs_blocked"] = self.rng.poisson(0.3, shape).astype(float)
        self.gauges["hw_mem_dirty_bytes"] = np.abs(self._noise(shape, 3e7)) + 2e7
        self.gauges["hw_mem_writeback_bytes"] = np.abs(self._noise(shape, 1e6))
        self.gauges["hw_io_pressure_full_pct"] = np.abs(self._noise(shape, 0.3))
        self.gauges["hw_io_pressure_some_pct"] = np.abs(self._noise(shape, 0.5))
        cycle = self.draw(ranges.CYCLE)
        self.gauges["hw_scrape_duration_seconds"] = cycle + np.abs(self._noise(shape, cycle / 8))
        tcp = self.draw(ranges.TCP_BACKGROUND)
        self.rates["hw_tcp_retransmits_total"] = np.abs(self._noise(shape, tcp + 0.1))
        for name in ("hw_tcp_listen_drops_total", "hw_tcp_abort_on_timeout_total",
                     "hw_net_rx_errors_total", "hw_oom_kills_total",
                     "hw_dmesg_gpu_errors_total"):  # fmt: skip
            self.rates[name] = np.zeros(shape)
        self.rates["hw_context_switches_total"] = 4e5 + self._noise(shape, 2e4)
        for name in ("hw_rdma_tx_retx_pkts_total", "hw_rdma_rx_cnp_pkts_total"):
            self.rdma[name] = np.abs(self._noise((self.hosts, self.devices, self.t.size),
                                                 self.draw(ranges.RDMA_BACKGROUND)))  # fmt: skip
        for name in ("hw_rdma_tx_ack_timeout_total", "hw_rdma_req_tx_retry_excd_err_total",
                     "hw_rdma_req_rx_cqe_err_total"):  # fmt: skip
            self.rdma[name] = self.device_zeros()
        if self.card.vendor == "amd":
            names = ("hw_gpu_ras_umc_ue_total", "hw_gpu_ras_umc_ce_total",
                     "hw_gpu_ras_xgmi_ce_total", "hw_gpu_pcie_fatal_total",
                     "hw_gpu_pcie_correctable_total")  # fmt: skip
        else:
            names = ("hw_gpu_ecc_uncorrected_total", "hw_gpu_ecc_corrected_total",
                     "hw_gpu_pcie_fatal_total", "hw_gpu_pcie_replay_total")  # fmt: skip
        for name in names:
            self.errors[name] = np.zeros((self.hosts, self.gpus, self.t.size))

    def play(self) -> None:
        """Run the job: steps, saves, and from them power, temperature and the rest."""
        if not self.drawn:
            self.draw_steps()
        if self.halt is not None:
            kept = self.ends <= self.halt
            self.ends, self.numbers = self.ends[kept], self.numbers[kept]
            self.lengths = self.lengths[kept]
            self.saves = [save for save in self.saves if save[0] <= self.halt]
        self._apply_saves()
        stopped = self.after(self.halt) if self.halt is not None else np.zeros(self.t.size, bool)
        resting = self.t < self.startup
        self.state[:, :, resting] = REST
        fresh = (self.state == WORK) & stopped[None, None, :]
        if not self.notes.get("keeps working"):
            self.state[fresh] = WAIT
        self._gpus()
        self._training()

    def draw_steps(self) -> None:
        """Each step's end and length, on the continuous clock of the job."""
        self.drawn = True
        noise = self.draw(ranges.STEP_NOISE)
        clock, step = self.startup, int(self.notes.get("first step", 0))
        ends, numbers, lengths = [], [], []
        last = self.t[-1] if self.halt is None else min(self.halt, self.t[-1])
        restart = self.notes.get("restart")
        while True:
            factor = float(np.interp(clock, self.t, self.slowdown))
            length = self.step_seconds * factor * (1.0 + self.rng.normal(0.0, noise))
            if step < 3:
                length *= 2.5
            if self.checkpoints and step and step % self.period == 0:
                save = self.save_seconds * (1.0 + self.rng.normal(0.0, 0.08))
                self.saves.append((clock, clock + save, step))
                length += save
            clock += length
            if clock > last:
                break
            step += 1
            ends.append(clock)
            numbers.append(step)
            lengths.append(length)
            if isinstance(restart, tuple) and clock > restart[0]:
                clock, step, restart = clock + restart[1], max(step - restart[2], 0), None
        self.ends = np.array(ends)
        self.numbers = np.array(numbers, dtype=float)
        self.lengths = np.array(lengths)

    def _apply_saves(self) -> None:
        factor = self.draw(ranges.CHECKPOINT_POWER)
        for start, end, _ in self.saves:
            cells = self.after(start, end)
            self.state[:, :, cells] = np.where(
                self.state[:, :, cells] == WORK, SAVE, self.state[:, :, cells]
            )
            for host in self.writers:
                io = self.draw(ranges.CHECKPOINT_IO)
                count = int(cells.sum())
                self.gauges["hw_io_pressure_full_pct"][host, cells] += io
                self.gauges["hw_io_pressure_some_pct"][host, cells] += io * 1.2
                self.gauges["hw_procs_blocked"][host, cells] += self.rng.integers(6, 20, count)
                self.gauges["hw_mem_dirty_bytes"][host, cells] += 6e9
                self.gauges["hw_mem_writeback_bytes"][host, cells] += 1e9
                self.rates["hw_tcp_retransmits_total"][host, cells] += self.draw(
                    ranges.CHECKPOINT_TCP
                )
                self.memory_extra[host, cells] += float(self.notes.get("save memory", 0.06))
        self.save_power = factor

    def _gpus(self) -> None:
        shape = (self.hosts, self.gpus, self.t.size)
        offset = 1.0 + self.rng.uniform(*ranges.CARD_OFFSET, (self.hosts, self.gpus, 1))
        work = self.draw(self.card.work) * offset
        wait, rest = self.draw(self.card.wait), self.draw(self.card.rest)
        noise = self.draw(ranges.POWER_NOISE)
        level = np.choose(self.state, [
            np.broadcast_to(work, shape), np.broadcast_to(wait * offset, shape),
            np.broadcast_to(rest * offset, shape),
            np.broadcast_to(work * self.save_power, shape), np.zeros(shape),
        ])  # fmt: skip
        level = np.where(self.state == WORK, level * self.power_factor, level)
        self.power = np.maximum(level * (1.0 + self._noise(shape, noise)), 0.0)
        use = np.choose(self.state, [
            self.rng.uniform(*ranges.UTILISATION_AT_WORK, shape),
            self.rng.uniform(*ranges.UTILISATION_WAITING, shape),
            np.zeros(shape), self.rng.uniform(0, 40, shape), np.zeros(shape),
        ])  # fmt: skip
        self.util = np.clip(use + np.where(self.state == WORK, self.util_extra, 0.0), 0, 100)
        hot, cold = self.draw(self.card.temperature), 38.0
        target = cold + (hot - cold) * (self.power - rest) / np.maximum(work - rest, 1.0)
        lag = np.exp(-self.interval / self.draw(ranges.TEMPERATURE_LAG))
        temp = np.empty(shape)
        temp[..., 0] = cold
        for cell in range(1, self.t.size):
            temp[..., cell] = lag * temp[..., cell - 1] + (1 - lag) * target[..., cell]
        if isinstance(room := self.notes.get("temperature"), tuple):
            share, level = room
            temp = (1.0 - share) * temp + share * level
        self.temp = temp + self.temp_extra + self._noise(shape, 0.4)
        busy = np.isin(self.state, (WORK, WAIT))
        self.clock = np.where(busy, self.card.clock * self.clock_factor, self.card.clock * 0.35)
        self.clock = self.clock + self._noise(shape, 5.0)
        used = self.draw((0.6, 0.88))
        self.vram = np.where(self.state == REST, 0.02, used) * self.card.vram

    def _training(self) -> None:
        count = self.numbers.size
        noise = self.rng.normal(0.0, 0.01, count)
        loss = self.draw(ranges.LOSS) * (1.0 + 2.0 * np.exp(-self.numbers / 60.0)) + noise
        grad = 0.4 + 0.6 * np.exp(-self.numbers / 80.0) + np.abs(self.rng.normal(0, 0.03, count))
        base = {
            "tb_step": self.numbers,
            "tb_learning_loss": loss,
            "tb_learning_grad_norm": np.minimum(grad, 1.0),
            "tb_learning_raw_grad_norm": grad,
            "tb_learning_current_learning_rate": 3e-4 * np.minimum(self.numbers / 50.0, 1.0),
            "tb_perf_step_time_seconds": self.lengths,
            "tb_perf_per_device_tokens_per_sec": 8192.0 / np.maximum(self.lengths, 1e-6),
        }
        for name, values in base.items():
            self.scalars.setdefault(name, values)
        for transform in self.transforms:
            transform(self)  # type: ignore[operator]

    def series(self) -> Iterator[Series]:
        """All series as they were scraped: name, labels, times, values."""
        jitter = self.rng.uniform(-0.4, 0.4, self.hosts)
        yield from self._gpu_series(jitter)
        yield from self._host_series(jitter)
        yield from self._device_series(jitter)
        yield from self._tb_series()
        yield from self.extra

    def _cut(self, name: str, times: np.ndarray, values: np.ndarray, keep: np.ndarray) -> tuple[
        np.ndarray, np.ndarray]:  # fmt: skip
        late = self.late.get(name)
        if late is not None:
            keep = keep & (self.t >= late)
        return times[keep], values[keep]

    def _gpu_series(self, jitter: np.ndarray) -> Iterator[Series]:
        util = "hw_gpu_utilization_ratio" if self.style == "ours" else "ray_node_gpus_utilization"
        scale = 0.01 if self.style == "ours" else 1.0
        families: dict[str, np.ndarray] = {
            "hw_gpu_power_watts": self.power,
            "hw_gpu_temperature_celsius": self.temp,
            "hw_gpu_clock_mhz": self.clock,
            "hw_gpu_vram_used_bytes": self.vram,
            "hw_gpu_vram_total_bytes": np.full_like(self.vram, self.card.vram),
            util: self.util * scale,
        }
        for name, rate in self.errors.items():
            families[name] = np.cumsum(rate, axis=-1)
        for name, values in families.items():
            if name in self.skip:
                continue
            for host in range(self.hosts):
                for gpu in range(self.gpus):
                    labels = {"host": self.names[host], "gpu": str(gpu)}
                    if name == "hw_gpu_clock_mhz":
                        labels["type"] = "sclk"
                    if name.startswith("ray_"):
                        labels = {"ip": f"10.0.0.{host + 1}", "GpuIndex": str(gpu),
                                  "instance": f"10.0.0.{host + 1}:55080"}  # fmt: skip
                    keep = self.alive[host] & self.gpu_alive[host, gpu]
                    times, kept = self._cut(name, self.times + jitter[host], values[host, gpu],
                                            keep)  # fmt: skip
                    yield name, labels, times, kept

    def _host_series(self, jitter: np.ndarray) -> Iterator[Series]:
        total = float(self.rng.choice(ranges.MEMORY_TOTAL))
        share = self.draw(ranges.MEMORY_SHARE)
        shape = (self.hosts, self.t.size)
        used = (share + self.memory_extra + self._noise(shape, 0.003)) * total
        used = np.minimum(used, 0.997 * total)
        families = dict(self.gauges)
        if self.style == "ours":
            families["hw_mem_total_bytes"] = np.full(shape, total)
            families["hw_mem_available_bytes"] = total - used
        else:
            families["ray_node_mem_total"] = np.full(shape, total)
            families["ray_node_mem_used"] = used
        for name, rate in self.rates.items():
            old = self.draw(ranges.BOOT_OLD_TCP) if "tcp" in name else 0.0
            families[name] = np.floor(old + np.cumsum(rate * self.interval, axis=-1))
        families["up"] = np.ones(shape)
        for name, values in families.items():
            if name in self.skip:
                continue
            for host in range(self.hosts):
                labels = {"host": self.names[host]}
                if name == "up":
                    labels["instance"] = f"10.0.0.{host + 1}:9400"
                if name.startswith("ray_"):
                    labels = {"ip": f"10.0.0.{host + 1}"}
                times, kept = self._cut(name, self.times + jitter[host], values[host],
                                        self.alive[host])  # fmt: skip
                yield name, labels, times, kept

    def _device_series(self, jitter: np.ndarray) -> Iterator[Series]:
        families = {}
        for name, rate in self.rdma.items():
            old = np.zeros((self.hosts, self.devices, 1))
            if "retx" in name or "cnp" in name:
                old = self.rng.uniform(*ranges.BOOT_OLD_RDMA, old.shape)
            families[name] = np.floor(old + np.cumsum(rate * self.interval, axis=-1))
        families["hw_rdma_port_state"] = self.port_state
        for name, values in families.items():
            if name in self.skip:
                continue
            for host in range(self.hosts):
                for device in range(self.devices):
                    labels = {"host": self.names[host], "device": f"rdma{device}", "port": "1"}
                    times, kept = self._cut(name, self.times + jitter[host],
                                            values[host, device], self.alive[host])  # fmt: skip
                    yield name, labels, times, kept

    def _tb_series(self) -> Iterator[Series]:
        """Scraped as gauges from the first host: the last step's value at each scrape."""
        skew = float(self.notes.get("clock skew", 0.0))
        at = np.searchsorted(self.ends, self.t, side="right") - 1
        keep = (at >= 0) & self.alive[0]
        gap = self.notes.get("tb gap")
        if isinstance(gap, tuple):
            keep &= ~self.after(*gap)
        for name, values in self.scalars.items():
            if name in self.skip or not values.size:
                continue
            times, kept = self._cut(name, self.times + skew, values[np.maximum(at, 0)], keep)
            yield name, {"host": self.names[0]}, times, kept
