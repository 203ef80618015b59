"""What looks like a fault and is none. Each changes a world that has not been played yet."""

from __future__ import annotations

import numpy as np

from tests.support.tsdb_scenarios.world import World


def tcp_storm(world: World, host: int, start: float, seconds: float) -> None:
    """Thousands of TCP retransmits a second: NFS or gRPC, not the collectives' path."""
    cells = world.after(start, start + seconds)
    world.rates["hw_tcp_retransmits_total"][host, cells] += world.draw((800, 4000))


def noisy_gpu(world: World, host: int, gpu: int) -> None:
    """One card whose power and temperature sensors are noisier than the others'."""
    size = world.t.size
    world.power_factor[host, gpu] *= 1.0 + world.rng.normal(0.0, 0.06, size)
    world.temp_extra[host, gpu] += world.rng.normal(0.0, 3.0, size)


def late_family(world: World, name: str, seconds: float) -> None:
    """A family that is exported only from some moment on, with counts old from boot."""
    world.late[name] = seconds


def correctable(world: World, host: int, gpu: int, at: float) -> None:
    """One corrected memory error."""
    name = next(n for n in world.errors if n.endswith(("umc_ce_total", "ecc_corrected_total")))
    world.errors[name][host, gpu, int(at / world.interval)] += 1.0


def old_errors(world: World, host: int, gpu: int) -> None:
    """Uncorrectable errors from before the job: the counter stands and never moves."""
    name = next(n for n in world.errors if n.endswith(("umc_ue_total", "ecc_uncorrected_total")))
    world.errors[name][host, gpu, 0] += 3.0


def rdma_blip(world: World, host: int, device: int, at: float) -> None:
    """Retransmits for one scrape, without any effect."""
    world.rdma["hw_rdma_tx_retx_pkts_total"][host, device, int(at / world.interval)] += 30.0


def scrape_gap(world: World, start: float, seconds: float) -> None:
    """Prometheus itself was away."""
    world.alive[:, world.after(start, start + seconds)] = False


def clock_skew(world: World, seconds: float) -> None:
    """The trainer's clock, and so all its scalars, is off."""
    world.notes["clock skew"] = seconds


def usual(world: World) -> None:
    """A handful of decoys, drawn by the world's own dice."""
    rng, end = world.rng, world.t[-1]
    dice = rng.random(7)
    host, gpu = int(rng.integers(world.hosts)), int(rng.integers(world.gpus))
    device = int(rng.integers(world.devices))
    when = float(rng.uniform(0.25, 0.6) * end)
    if dice[0] < 0.5:
        tcp_storm(world, host, when, world.draw((120, 900)))
    if dice[1] < 0.5:
        noisy_gpu(world, int(rng.integers(world.hosts)), gpu)
    if dice[2] < 0.3:
        correctable(world, host, gpu, when)
    if dice[3] < 0.3:
        old_errors(world, host, gpu)
    if dice[4] < 0.3:
        rdma_blip(world, host, device, when)
    if dice[5] < 0.25:
        late_family(world, "hw_tcp_retransmits_total", float(rng.uniform(0.2, 0.4) * end))
    if dice[6] < 0.25:
        clock_skew(world, float(rng.uniform(-20, 20)))
    # A few processes more or less on one host: a cron job.
    cells = world.after(when, when + 60)
    world.gauges["hw_procs_running"][host, cells] += float(np.round(world.draw((2, 8))))


def restless(world: World) -> None:
    """What a real cluster shows all day, and what comes to nothing: bursts of congestion notices,
    single retransmits and time-outs, threads and temperatures that wander, storage in bursts."""
    rng, cells = world.rng, world.t.size
    ports = [(host, device) for host in range(world.hosts) for device in range(world.devices)]
    for host, device in ports:
        for _ in range(rng.poisson(2)):
            at, length = int(rng.integers(cells)), int(rng.integers(1, 4))
            world.rdma["hw_rdma_rx_cnp_pkts_total"][host, device, at : at + length] += rng.uniform(
                0.3, 5.0
            )
    for host, device in (ports[index] for index in rng.integers(len(ports), size=3)):
        at = int(rng.integers(cells))
        world.rdma["hw_rdma_tx_retx_pkts_total"][host, device, at] += rng.uniform(1, 40)
    host, device = ports[int(rng.integers(len(ports)))]
    world.rdma["hw_rdma_tx_ack_timeout_total"][host, device, int(rng.integers(cells))] += (
        1.0 / world.interval
    )
    for host in range(world.hosts):
        _wander(world, "hw_procs_running", host, size=rng.uniform(2, 6))
        if rng.random() < 0.5:
            at = int(rng.integers(cells // 8, cells))
            world.gauges["hw_procs_running"][host, at:] += rng.uniform(-6, 10)
        for _ in range(rng.poisson(2)):
            at, length = int(rng.integers(cells)), int(rng.integers(1, 8))
            world.gauges["hw_io_pressure_some_pct"][host, at : at + length] += rng.uniform(3, 15)
            world.gauges["hw_io_pressure_full_pct"][host, at : at + length] += rng.uniform(2, 10)
            world.gauges["hw_procs_blocked"][host, at : at + length] += rng.integers(1, 6)
        world.rates["hw_net_rx_errors_total"][host, rng.integers(cells, size=3)] += 0.2
    gauge = world.gauges["hw_procs_running"]
    world.gauges["hw_procs_running"] = np.maximum(np.round(gauge), 1.0)
    world.temp_extra += 2.0 * np.sin(world.t / rng.uniform(900, 2400) + rng.uniform(0, 6))
    world.slowdown *= 1.0 + 0.02 * np.sin(world.t / rng.uniform(600, 2400) + rng.uniform(0, 6))


def _wander(world: World, name: str, host: int, size: float) -> None:
    steps = world.rng.normal(0.0, 1.0, world.t.size)
    drift = np.zeros(world.t.size)
    for cell in range(1, world.t.size):
        drift[cell] = 0.97 * drift[cell - 1] + 0.24 * steps[cell]
    world.gauges[name][host] += size * drift
