"""True cases of every telemetry rule.

A case changes the job's truth, lets it run, and tells what a rule must say: its name and where.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from ray_sentinel.model.metrics import Event
from tests.support.telemetry_sim import ranges
from tests.support.telemetry_sim.job import PER_NODE, Card, Host, TelemetryJob


@dataclass(frozen=True)
class Expected:
    """The alert that must come."""

    rule: str
    host: str = ""
    gpu: str = ""


Case = Callable[[TelemetryJob], Expected]
SERVED = 'server_requests{job="serve-app-Model",state="running"}'
ANSWERED = 'server_requests_finished_total{job="serve-app-Model"}'
SETTLE = 320.0
"""Seconds in which the job is at work before anything happens."""


def victim(job: TelemetryJob) -> tuple[Host, int, Card]:
    host = job.dice.choice(job.hosts)
    index = job.dice.randrange(PER_NODE)
    return host, index, host.cards[index]


def _on_card(rule: str, change: Callable[[TelemetryJob, Card], None], seconds: float = 220) -> Case:
    def case(job: TelemetryJob) -> Expected:
        job.run(SETTLE)
        host, index, card = victim(job)
        change(job, card)
        job.run(seconds)
        return Expected(rule, host.name, str(index))

    return case


def _on_host(rule: str, change: Callable[[TelemetryJob, Host], None], seconds: float = 220) -> Case:
    def case(job: TelemetryJob) -> Expected:
        job.run(SETTLE)
        host = job.dice.choice(job.hosts)
        change(job, host)
        job.run(seconds)
        return Expected(rule, host.name)

    return case


def _capped(job: TelemetryJob, card: Card) -> None:
    card.power = job.draw(ranges.CAPPED_POWER)


def _slow_clock(job: TelemetryJob, card: Card) -> None:
    card.clock = job.draw(ranges.THROTTLED_CLOCK)


def _hot(job: TelemetryJob, card: Card) -> None:
    card.heat = job.draw(ranges.HOT) - 50.0


def _hot_for_any(job: TelemetryJob, card: Card) -> None:
    """All cards alike: none stands out."""
    for host in job.hosts:
        for other in host.cards:
            other.heat = 60.0


def _throttled(job: TelemetryJob, card: Card) -> None:
    card.throttle = "hw_thermal_slowdown"


def _counts(metric: str, span: ranges.Range) -> Callable[[TelemetryJob, Card], None]:
    def change(job: TelemetryJob, card: Card) -> None:
        card.counters[metric] = card.counters.get(metric, 0.0) + job.draw(span)

    return change


def _rate(key: str, span: ranges.Range) -> Callable[[TelemetryJob, Host], None]:
    def change(job: TelemetryJob, host: Host) -> None:
        host.rates[key] = job.draw(span)

    return change


def _leap(key: str, span: ranges.Range) -> Callable[[TelemetryJob, Host], None]:
    def change(job: TelemetryJob, host: Host) -> None:
        host.counters[key] += job.draw(span) + 6.0

    return change


def _gauge(key: str, span: ranges.Range) -> Callable[[TelemetryJob, Host], None]:
    def change(job: TelemetryJob, host: Host) -> None:
        host.gauges[key] = job.draw(span)

    return change


def _disk(job: TelemetryJob, host: Host) -> None:
    host.gauges['hw_disk_free_bytes{mount="/"}'] = 1e12 * job.draw(ranges.DISK_LEFT)


def _sockets(job: TelemetryJob, host: Host) -> None:
    host.rates['hw_rdma_tx_bytes_total{device="mlx5_0",port="1"}'] = 0.0
    host.rates['hw_net_tx_bytes_total{device="eth0"}'] = 2e9


def leak(job: TelemetryJob) -> Expected:
    job.run(SETTLE)
    host = job.dice.choice(job.hosts)
    seconds = 60.0 * job.draw(ranges.LEAK_MINUTES)
    speed = host.gauges["hw_mem_available_bytes"] / seconds
    for _ in range(int(seconds * 0.97)):
        host.gauges["hw_mem_available_bytes"] -= speed
        job.run(1)
    return Expected("host.memory_low", host.name)


def xid(job: TelemetryJob) -> Expected:
    job.run(SETTLE)
    host, index, card = victim(job)
    card.gone = True
    host.events.append(
        Event(
            time=job.now,
            kind="kernel.xid",
            message=f"NVRM: Xid (PCI:0000:0{index}:00): 79, GPU has fallen off the bus.",
            severity="critical",
            attributes={"xid": "79", "gpu": str(index), "pci": f"0000:0{index}:00"},
        )
    )
    job.run(30)
    return Expected("gpu.xid", host.name, str(index))


def busy_wait(job: TelemetryJob) -> Expected:
    """All poll but one, that rests: its rank is who the others wait for."""
    job.run(SETTLE)
    host, index, _ = victim(job)
    job.held = True
    for other in job.hosts:
        for place, card in enumerate(other.cards):
            card.state = "rest" if (other, place) == (host, index) else "poll"
    job.run(90)
    return Expected("gpu.busy_wait", host.name, str(index))


def idle(job: TelemetryJob) -> Expected:
    """The ranks run, and no GPU does anything: they cannot see any."""
    for host in job.hosts:
        for card in host.cards:
            card.state, card.loaded = "rest", False
    job.run(420)
    return Expected("gpu.idle")


def _factor(name: str, span: ranges.Range, rule: str) -> Case:
    def case(job: TelemetryJob) -> Expected:
        job.run(SETTLE)
        job.factors[name] = job.draw(span)
        job.run(150)
        return Expected(rule)

    return case


def nan(job: TelemetryJob) -> Expected:
    job.run(SETTLE)
    job.factors["loss"] = float("nan")
    job.run(90)
    return Expected("train.loss")


def moe(job: TelemetryJob) -> Expected:
    job.scalars["moe_lb_loss"], job.factors["moe_lb_loss"] = 0.02, 1.0
    job.run(SETTLE)
    job.factors["moe_lb_loss"] = job.draw(ranges.DIVERGED)
    job.run(150)
    return Expected("train.moe_balance")


def slower(job: TelemetryJob) -> Expected:
    job.run(SETTLE)
    job.slower = job.draw(ranges.SLOWER)
    job.run(300)
    return Expected("train.throughput")


def no_saves(job: TelemetryJob) -> Expected:
    for _ in range(4):
        job.run(80)
        job.enter("checkpoint")
        job.run(10)
        job.enter("train")
    job.run(260)
    return Expected("train.checkpoint_overdue")


_PORT = 'device="mlx5_0",port="1"'


def serve(job: TelemetryJob) -> Host:
    """A deployment of Ray Serve on some node, whose requests are answered."""
    host = job.dice.choice(job.hosts)
    host.counters[ANSWERED] = job.draw(ranges.BOOT_OLD)
    host.rates[ANSWERED] = job.draw(ranges.ANSWERS)
    host.gauges[SERVED] = 3.0
    job.run(SETTLE)
    return host


def unanswered(job: TelemetryJob) -> Expected:
    """From some moment on no request ends."""
    del serve(job).rates[ANSWERED]
    job.run(400)
    return Expected("serve.stalled")


TRUE: dict[str, Case] = {
    "power cap": _on_card("gpu.power_outlier", _capped),
    "slow clock": _on_card("gpu.clock_outlier", _slow_clock),
    "hot": _on_card("gpu.temperature_outlier", _hot),
    "hotter than any may be": _on_card("gpu.hot", _hot_for_any),
    "throttled": _on_card("gpu.throttle", _throttled, 120),
    "ecc": _on_card(
        "gpu.memory_errors", _counts("hw_gpu_ecc_uncorrected_total", ranges.ERRORS), 40
    ),
    "ras": _on_card("gpu.memory_errors", lambda job, card: _ras(card), 60),
    "aer": _on_card("gpu.pcie_errors", _counts("hw_gpu_pcie_nonfatal_total", ranges.ERRORS), 40),
    "nvlink": _on_card(
        "gpu.nvlink", _counts("hw_gpu_nvlink_errors_total", ranges.NVLINK_ERRORS), 40
    ),
    "xid": xid,
    "busy wait": busy_wait,
    "idle": idle,
    "retransmits": _on_host(
        "net.rdma_retransmit",
        _rate(f"hw_rdma_tx_retx_pkts_total{{{_PORT}}}", ranges.RETRANSMITS_BAD),
    ),
    "ack": _on_host(
        "net.rdma_ack_timeout",
        _leap(f"hw_rdma_tx_ack_timeout_total{{{_PORT}}}", ranges.ERRORS),
        40,
    ),
    "retry": _on_host(
        "net.rdma_retry_exhausted",
        _leap(f"hw_rdma_req_tx_retry_excd_err_total{{{_PORT}}}", ranges.ERRORS),
        40,
    ),
    "cnp": _on_host(
        "net.rdma_congestion", _rate(f"hw_rdma_rx_cnp_pkts_total{{{_PORT}}}", ranges.CNP_BAD)
    ),
    "port down": _on_host(
        "net.port_down", _gauge(f"hw_rdma_port_state{{{_PORT}}}", (0.0, 0.0)), 60
    ),
    "tcp": _on_host("net.tcp_retransmit", _rate("hw_tcp_retransmits_total", ranges.TCP_STORM)),
    "sockets": _on_host("train.transport", _sockets),
    "io": _on_host("host.io_pressure", _gauge("hw_io_pressure_full_pct", ranges.IO_FULL)),
    "thrash": _on_host(
        "host.memory_pressure", _gauge("hw_mem_pressure_full_pct", ranges.MEMORY_FULL)
    ),
    "dstate": _on_host(
        "host.dstate",
        _gauge('hw_dstate_processes{wchan="amdgpu_ring_wait"}', ranges.BLOCKED),
    ),
    "oom": _on_host("host.oom_kill", _leap("hw_oom_kills_total", (1.0, 3.0)), 40),
    "leak": leak,
    "cpu": _on_host("host.cpu_contention", _gauge("hw_procs_running", ranges.RUNNABLE_EXTRA)),
    "disk": _on_host("host.disk_full", _disk, 40),
    "nan": nan,
    "diverging": _factor("loss", ranges.DIVERGED, "train.loss"),
    "gradient": _factor("grad_norm", ranges.SPIKE, "train.gradient"),
    "moe": moe,
    "slower": slower,
    "no saves": no_saves,
    "unanswered": unanswered,
}


COVERS: dict[str, str] = {
    "power cap": "gpu.power_outlier",
    "slow clock": "gpu.clock_outlier",
    "hot": "gpu.temperature_outlier",
    "hotter than any may be": "gpu.hot",
    "throttled": "gpu.throttle",
    "ecc": "gpu.memory_errors",
    "ras": "gpu.memory_errors",
    "aer": "gpu.pcie_errors",
    "nvlink": "gpu.nvlink",
    "xid": "gpu.xid",
    "busy wait": "gpu.busy_wait",
    "idle": "gpu.idle",
    "retransmits": "net.rdma_retransmit",
    "ack": "net.rdma_ack_timeout",
    "retry": "net.rdma_retry_exhausted",
    "cnp": "net.rdma_congestion",
    "port down": "net.port_down",
    "tcp": "net.tcp_retransmit",
    "sockets": "train.transport",
    "io": "host.io_pressure",
    "thrash": "host.memory_pressure",
    "dstate": "host.dstate",
    "oom": "host.oom_kill",
    "leak": "host.memory_low",
    "cpu": "host.cpu_contention",
    "disk": "host.disk_full",
    "nan": "train.loss",
    "diverging": "train.loss",
    "gradient": "train.gradient",
    "moe": "train.moe_balance",
    "slower": "train.throughput",
    "no saves": "train.checkpoint_overdue",
    "unanswered": "serve.stalled",
}
"""Which rule each true case is of."""


def _ras(card: Card) -> None:
    card.counters["hw_gpu_ras_umc_ue_total"] = card.counters.get("hw_gpu_ras_umc_ue_total", 0.0)
    card.counters["hw_gpu_ecc_uncorrected_total"] += 3.0
