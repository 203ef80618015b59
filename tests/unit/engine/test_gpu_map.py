"""One quantity of all GPUs, from what their nodes sent."""

from __future__ import annotations

import threading
import time
from typing import get_args

import msgspec
import pytest

from ray_sentinel.engine.telemetry.gpu_map import gpu_map
from ray_sentinel.engine.telemetry.port_map import port_map
from ray_sentinel.engine.telemetry.series import Telemetry
from ray_sentinel.model.gpus import GpuMap, GpuQuantity
from ray_sentinel.model.identity import Node
from ray_sentinel.model.progress import Snapshot
from tests.support.page_data import NOW
from tests.support.page_gpus import ports, telemetry
from tests.support.samples import sampled


def mapped(known: Telemetry, quantity: GpuQuantity = "utilisation", now: float = NOW) -> GpuMap:
    return gpu_map(known, quantity, now, threading.Lock())


def one_node(values: dict[str, float]) -> Telemetry:
    known = Telemetry()
    node = Node(id="n", host="node-0", address="10.0.0.1")
    known.add(Snapshot(node=node, time=NOW, sequence=1, samples=sampled(values)), NOW, 0.0)
    return known


def test_each_quantity_of_each_gpu() -> None:
    known = telemetry(1, gpus=2)
    told = {quantity: mapped(known, quantity).rows[0].values for quantity in get_args(GpuQuantity)}
    assert told == {
        "utilisation": (0.95, 0.99),
        "memory": (0.8, 0.86),
        "power": (580.0, 658.0),
        "temperature": (64.0, 74.0),
        "clock": (1830.0, 1713.0),
        "memory-clock": (2619.0, 2619.0),
    }


def test_what_is_stale_stays_with_its_age() -> None:
    rows = mapped(telemetry(3)).rows
    assert [row.host for row in rows] == ["node-0", "node-1", "node-2"]
    assert [set(row.ages) for row in rows] == [{2}, {2}, {300}]
    assert None not in rows[2].values


def test_nodes_and_gpus_are_in_the_order_in_which_people_count() -> None:
    known = telemetry(12, gpus=12)
    hosts = [row.host for row in mapped(known).rows]
    assert hosts == [f"node-{number}" for number in range(12)]
    assert mapped(known).rows[0].gpus == tuple(map(str, range(12)))


def test_a_gpu_without_the_value_is_there_without_it() -> None:
    known = one_node({'hw_gpu_info{gpu="0",uuid="a"}': 1.0, 'hw_gpu_vram_used_bytes{gpu="1"}': 5.0})
    (row,) = mapped(known, "power").rows
    assert (row.gpus, row.values, row.ages) == (("0",), (None,), (None,))
    (row,) = mapped(known, "memory").rows
    assert (row.gpus, row.values, row.ages) == (("0", "1"), (None, None), (None, None))


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_a_value_that_is_no_number_is_unknown(value: float) -> None:
    known = one_node({'hw_gpu_info{gpu="0"}': 1.0, 'hw_gpu_power_watts{gpu="0"}': value})
    (row,) = mapped(known, "power").rows
    assert row.values == (None,)


def test_nodes_without_gpus_have_no_row() -> None:
    assert mapped(one_node({"hw_load1": 3.0})).rows == ()


def test_a_thousand_nodes_are_told_in_a_moment() -> None:
    known = telemetry(1024)
    begun = time.process_time()
    found = mapped(known)
    assert time.process_time() - begun < 1.0
    assert sum(len(row.gpus) for row in found.rows) == 8192
    assert len(msgspec.json.encode(found)) < 250_000


def test_ports_are_told_by_device_in_order_and_what_is_stale_with_its_age() -> None:
    rows = ports(3).rows
    assert [row.host for row in rows] == ["node-0", "node-1", "node-2"]
    assert rows[0].ports == ("mlx5_0/1", "mlx5_1/1", "mlx5_2/1", "mlx5_3/1")
    assert [row.active for row in rows[:2]] == [(True,) * 4, (True, True, False, True)]
    assert [set(row.ages) for row in rows] == [{2}, {2}, {300}]
    assert port_map(one_node({}), NOW, threading.Lock()).rows == ()


def counted(*values: dict[str, float]) -> Telemetry:
    """Samples of one node, ten seconds apart, the last one now."""
    known = Telemetry()
    node = Node(id="n", host="node-0", address="10.0.0.1")
    port = '{device="mlx5_0",port="1"}'
    for place, one in enumerate(values):
        at = NOW - 10.0 * (len(values) - 1 - place)
        told = {f"hw_rdma_{name}{port}": value for name, value in one.items()}
        samples = sampled(told | {f"hw_rdma_port_state{port}": 1.0})
        known.add(Snapshot(node=node, time=at, sequence=1, samples=samples), at, 0.0)
    return known


def test_traffic_is_what_counters_rose_by_in_a_second() -> None:
    known = counted(
        *({"rx_bytes_total": 5e9 + 2e9 * n, "tx_bytes_total": 4e9 - n} for n in range(3))
    )
    (row,) = port_map(known, NOW, threading.Lock()).rows
    assert (row.received, row.sent) == ((200_000_000,), (None,)), "one of them was begun anew"
    (row,) = port_map(counted({"rx_bytes_total": 5.0}), NOW, threading.Lock()).rows
    assert (row.received, row.sent, row.errors) == ((None,), (None,), ((),))


def test_errors_are_those_that_rose_the_gravest_first() -> None:
    steps = ((0, 7, 3), (0, 9, 3), (2, 12, 3))
    names = ("link_downed_total", "tx_retx_pkts_total", "symbol_errors_total")
    known = counted(*(dict(zip(names, map(float, step), strict=True)) for step in steps))
    told = port_map(known, NOW, threading.Lock())
    assert told.rows[0].errors == ((("link downed", 2), ("retransmitted packets", 5)),)
    assert told.error_seconds == 1800.0


def test_the_ports_of_a_thousand_nodes_are_told_in_a_moment() -> None:
    known = telemetry(1024, traffic=True)
    begun = time.process_time()
    found = port_map(known, NOW, threading.Lock())
    assert time.process_time() - begun < 1.0
    assert len(msgspec.json.encode(found)) < 400_000
