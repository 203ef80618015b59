"""GPUs of nodes that told of them, through the engine's telemetry."""

from __future__ import annotations

import math
import threading

from ray_sentinel.engine.telemetry.gpu_map import gpu_map
from ray_sentinel.engine.telemetry.port_map import port_map
from ray_sentinel.engine.telemetry.series import Telemetry
from ray_sentinel.model.gpus import GpuMap, GpuQuantity, GpuRow, HostRankGpus, RankGpus
from ray_sentinel.model.identity import Node
from ray_sentinel.model.ports import PortMap
from ray_sentinel.model.progress import Snapshot
from ray_sentinel.model.status import Status
from tests.support.page_data import NOW
from tests.support.samples import sampled

GIB = float(1 << 30)


def told(host: str, number: int, *, gpus: int = 8, at: float = NOW - 2.0) -> Snapshot:
    """What a node's agent sends of its GPUs."""
    values: dict[str, float] = {}
    for index in range(gpus):
        wave = 0.5 + 0.5 * math.sin(number * 1.7 + index * 0.9)
        label = f'{{gpu="{index}"}}'
        values |= {
            f"hw_gpu_utilization_ratio{label}": 0.9 + 0.1 * wave,
            f"hw_gpu_vram_used_bytes{label}": (58 + 12 * wave) * GIB,
            f"hw_gpu_vram_total_bytes{label}": 80 * GIB,
            f"hw_gpu_power_watts{label}": 480 + 200 * wave,
            f"hw_gpu_temperature_celsius{label}": 52 + 25 * wave,
            f'hw_gpu_clock_mhz{{gpu="{index}",type="sclk"}}': 1980 - 300 * wave,
            f'hw_gpu_clock_mhz{{gpu="{index}",type="mclk"}}': 2619,
        }
    for index in range(4):
        down = number == 1 and index == 2
        values[f'hw_rdma_port_state{{device="mlx5_{index}",port="1"}}'] = float(not down)
    node = Node(id=host, host=host, address="10.0.0.1")
    return Snapshot(node=node, time=at, sequence=1, samples=sampled(values))


def counted(host: str, number: int, at: float) -> Snapshot:
    """What it sends of its ports' counters: the first one of node 2 sends packets again."""
    begun, values = NOW - 1000.0, {}
    for index in range(4):
        label = f'{{device="mlx5_{index}",port="1"}}'
        pace = 1e9 * (20 + 5 * math.sin(number * 1.3 + index))
        again = 3.0 * (at - begun) if (number, index) == (2, 0) else 7.0
        values |= {
            f"hw_rdma_rx_bytes_total{label}": pace * (at - begun),
            f"hw_rdma_tx_bytes_total{label}": 0.9 * pace * (at - begun),
            f"hw_rdma_tx_retx_pkts_total{label}": again,
        }
    node = Node(id=host, host=host, address="10.0.0.1")
    return Snapshot(node=node, time=at, sequence=1, samples=sampled(values))


def telemetry(
    nodes: int = 2, *, gpus: int = 8, hostile: str = "", traffic: bool = False
) -> Telemetry:
    """Of ``nodes`` nodes; the last one reported five minutes ago."""
    known = Telemetry()
    for number in range(nodes):
        last = number == nodes - 1 and nodes > 1
        at = NOW - (300.0 if last else 2.0)
        for earlier in (20.0, 10.0) if traffic else ():
            known.add(counted(f"node-{number}{hostile}", number, at - earlier), NOW, 0.0)
        known.add(told(f"node-{number}{hostile}", number, gpus=gpus, at=at), NOW, 0.0)
    return known


def gpus(quantity: GpuQuantity, nodes: int = 6, hostile: str = "") -> GpuMap:
    """As the page is told."""
    return gpu_map(telemetry(nodes, hostile=hostile), quantity, NOW, threading.Lock())


def ports(nodes: int = 6, hostile: str = "") -> PortMap:
    """As the page is told."""
    return port_map(telemetry(nodes, hostile=hostile, traffic=True), NOW, threading.Lock())


def rank_gpus(status: Status, quantity: GpuQuantity, second: int = 0) -> RankGpus:
    """What each rank's GPU does: all work, each a bit more or less than a second before, but for
    those of ranks that are stopped. The last node reported five minutes ago; the first GPU of each
    hundredth one is not known."""
    by_host: dict[str, list[tuple[int, float]]] = {}
    for rank in status.jobs[0].ranks:
        wave = 0.5 + 0.5 * math.sin(rank.rank * 0.9 + 1.3 * second)
        share = 0.0 if rank.state == "stopped" else 0.7 + 0.3 * wave
        value = share if quantity == "utilisation" else 90 + 600 * share
        by_host.setdefault(rank.host, []).append((rank.pid, value))
    hosts = []
    for number, (host, ranks) in enumerate(by_host.items()):
        known = ranks[1:] if number % 100 == 99 else ranks
        age = 300.0 if number == len(by_host) - 1 and number else 2.0
        hosts.append(
            HostRankGpus(
                host=host,
                pids=tuple(pid for pid, _ in known),
                values=tuple(value for _, value in known),
                ages=len(known) * (age,),
            )
        )
    return RankGpus(quantity=quantity, hosts=tuple(hosts))


def map_of(told: RankGpus) -> GpuMap:
    """The same as the heat map shows it."""
    rows = (
        GpuRow(
            host=host.host,
            gpus=tuple(map(str, range(len(host.pids)))),
            values=host.values,
            ages=tuple(map(round, host.ages)),
        )
        for host in told.hosts
    )
    return GpuMap(quantity=told.quantity, rows=tuple(rows))
