"""What happens to healthy jobs, and no telemetry rule may speak for."""

from __future__ import annotations

from collections.abc import Callable

from tests.support.telemetry_sim import ranges
from tests.support.telemetry_sim.faults import ANSWERED, SERVED, serve, victim
from tests.support.telemetry_sim.job import TelemetryJob


def healthy(job: TelemetryJob) -> None:
    job.run(900)


def saves(job: TelemetryJob) -> None:
    """Checkpoints: power falls, I/O and TCP rise, steps wait."""
    for _ in range(4):
        job.run(150)
        job.enter("checkpoint")
        for host in job.hosts:
            host.gauges["hw_io_pressure_full_pct"] = job.draw(ranges.IO_SAVE)
            host.rates["hw_tcp_retransmits_total"] = job.draw(ranges.TCP_SAVE)
            for card in host.cards:
                card.state = job.dice.choice(("poll", "rest"))
        job.run(job.draw(ranges.SAVE_SECONDS))
        job.enter("train")
        for host in job.hosts:
            host.gauges["hw_io_pressure_full_pct"] = 1.0
            host.rates["hw_tcp_retransmits_total"] = 1.0
            for card in host.cards:
                card.state = "work"
    job.run(120)


def evaluation(job: TelemetryJob) -> None:
    job.run(300)
    job.enter("evaluate")
    for host in job.hosts:
        for card in host.cards:
            card.power = 0.5
    job.run(240)
    job.enter("train")
    for host in job.hosts:
        for card in host.cards:
            card.power = 1.0
    job.run(120)


def start_up(job: TelemetryJob) -> None:
    """Ten minutes of loading: GPUs rest, disks are busy in bursts."""
    job.enter("model_load")
    for host in job.hosts:
        for card in host.cards:
            card.state = "rest"
    for _ in range(10):
        for host in job.hosts:
            host.gauges["hw_io_pressure_full_pct"] = job.dice.choice((2.0, 40.0))
        job.run(60)
    job.enter("train")
    for host in job.hosts:
        host.gauges["hw_io_pressure_full_pct"] = 1.0
        for card in host.cards:
            card.state = "work"
    job.run(200)


def noisy_sensor(job: TelemetryJob) -> None:
    _, _, card = victim(job)
    card.spikes = max(0.01, job.draw(ranges.SPIKE_CHANCE))
    job.run(900)


def by_design(job: TelemetryJob) -> None:
    """GPUs that the job was not given, or does not use: left over on purpose."""
    for host in job.hosts:
        host.cards[-1].state, host.cards[-1].loaded = "rest", False
    job.run(700)


def counters_old(job: TelemetryJob) -> None:
    """What was counted since boot, long before the job, and a series that is late to appear."""
    job.run(200)
    for host in job.hosts:
        for card in host.cards:
            card.counters["hw_gpu_pcie_fatal_total"] = job.draw(ranges.BOOT_OLD)
        host.counters["hw_cgroup_oom_kills_total"] = job.draw(ranges.BOOT_OLD)
    job.run(300)


def agent_restart(job: TelemetryJob) -> None:
    """Series vanish for a while, and counters of a driver that was loaded anew begin at 0."""
    job.run(300)
    for host in job.hosts:
        for card in host.cards:
            card.gone = True
    job.run(90)
    for host in job.hosts:
        for card in host.cards:
            card.gone = False
    job.run(200)


def dataset_loaded(job: TelemetryJob) -> None:
    """A third of the memory goes in one leap, and stays."""
    job.run(300)
    for host in job.hosts:
        host.gauges["hw_mem_available_bytes"] = 2.5e11
    job.run(400)


def one_spike(job: TelemetryJob) -> None:
    """One step's loss is high; the next is as before."""
    job.run(300)
    job.factors["loss"] = 4.0
    job.run(3)
    job.factors["loss"] = 1.0
    job.run(200)


def nobody_asks(job: TelemetryJob) -> None:
    """A server answers, and is then left alone."""
    host = serve(job)
    host.gauges[SERVED] = 0.0
    del host.rates[ANSWERED]
    job.run(500)


DECOYS: dict[str, Callable[[TelemetryJob], None]] = {
    "healthy": healthy,
    "saves": saves,
    "evaluation": evaluation,
    "start-up": start_up,
    "noisy sensor": noisy_sensor,
    "counters old from boot": counters_old,
    "agent restart": agent_restart,
    "dataset loaded": dataset_loaded,
    "one spike": one_spike,
    "nobody asks": nobody_asks,
}
