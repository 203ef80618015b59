"""What the host collector says of this machine, beside psutil and node_exporter.

A counter that goes on between two readings is between what the others said before and after it.
"""

from __future__ import annotations

import socket
import subprocess
import time
import urllib.request
from collections.abc import Iterator

import psutil
import pytest
from prometheus_client.parser import text_string_to_metric_families

from ray_sentinel.api import Context, Sample
from ray_sentinel_plugins.host import HostCollector
from tests.support.parts import require

pytestmark = pytest.mark.integration

Series = dict[tuple[str, ...], float]


def ours() -> Series:
    """(Name, label values) → value."""
    found = HostCollector(Context()).collect()
    return {(s.name, *(v for _, v in s.labels)): s.value for s in found if isinstance(s, Sample)}


def of_psutil() -> Series:
    found: Series = {}
    for name, net in psutil.net_io_counters(pernic=True, nowrap=False).items():
        for way, other in (("rx", "recv"), ("tx", "sent")):
            found[f"hw_net_{way}_bytes_total", name] = getattr(net, f"bytes_{other}")
        found["hw_net_rx_errors_total", name], found["hw_net_tx_errors_total", name] = (
            net.errin,
            net.errout,
        )
        found["hw_net_rx_drop_total", name], found["hw_net_tx_drop_total", name] = (
            net.dropin,
            net.dropout,
        )
    for name, disk in psutil.disk_io_counters(perdisk=True, nowrap=False).items():
        found["hw_disk_read_bytes_total", name] = disk.read_bytes
        found["hw_disk_written_bytes_total", name] = disk.write_bytes
        found["hw_disk_io_seconds_total", name] = disk.busy_time / 1000
    cpu = psutil.cpu_times()
    for mode in ("user", "nice", "system", "idle", "iowait", "irq", "softirq", "steal"):
        found["hw_cpu_seconds_total", mode] = getattr(cpu, mode)
    # psutil takes the guests' time out of the user's, of which the kernel says it is a part.
    found["hw_cpu_seconds_total", "user"] += cpu.guest
    found["hw_cpu_seconds_total", "nice"] += cpu.guest_nice
    found["hw_context_switches_total",] = psutil.cpu_stats().ctx_switches
    return found


def between(before: Series, mine: Series, after: Series) -> list[tuple[str, ...]]:
    """The series that were compared; fails where one is not between the others."""
    compared = sorted(mine.keys() & before.keys() & after.keys())
    for key in compared:
        low, high = before[key], after[key]
        assert low - 0.011 <= mine[key] <= high + 0.011, (key, low, mine[key], high)
    return compared


def test_counters_are_psutils() -> None:
    before = of_psutil()
    mine = ours()
    compared = between(before, mine, of_psutil())
    assert {key[0] for key in compared} == {key[0] for key in before}
    cpus = [key for key in compared if key[0] == "hw_cpu_seconds_total"]
    assert len(cpus) == 8


def test_sizes_are_psutils() -> None:
    found, memory = ours(), psutil.virtual_memory()
    assert found["hw_mem_total_bytes",] == memory.total
    assert found["hw_mem_available_bytes",] == pytest.approx(memory.available, rel=0.1)
    assert found["hw_load1",] == pytest.approx(psutil.getloadavg()[0], abs=2.0)
    mounts = [key[1] for key in found if key[0] == "hw_disk_total_bytes"]
    assert "/" in mounts
    for mount in mounts:
        usage = psutil.disk_usage(mount)
        # psutil leaves out what is kept for root; the file system's size has it.
        assert found["hw_disk_total_bytes", mount] >= usage.total
        assert found["hw_disk_free_bytes", mount] == pytest.approx(usage.free, rel=0.05)


NODE = {
    "node_network_receive_bytes_total": "hw_net_rx_bytes_total",
    "node_network_transmit_bytes_total": "hw_net_tx_bytes_total",
    "node_network_receive_errs_total": "hw_net_rx_errors_total",
    "node_network_transmit_errs_total": "hw_net_tx_errors_total",
    "node_netstat_Tcp_RetransSegs": "hw_tcp_retransmits_total",
    "node_netstat_TcpExt_ListenOverflows": "hw_tcp_listen_overflows_total",
    "node_netstat_TcpExt_ListenDrops": "hw_tcp_listen_drops_total",
    "node_context_switches_total": "hw_context_switches_total",
    "node_vmstat_oom_kill": "hw_oom_kills_total",
    "node_disk_read_bytes_total": "hw_disk_read_bytes_total",
    "node_disk_written_bytes_total": "hw_disk_written_bytes_total",
    "node_disk_io_time_seconds_total": "hw_disk_io_seconds_total",
    "node_memory_MemTotal_bytes": "hw_mem_total_bytes",
}
"""Its name and ours of one fact."""


@pytest.fixture
def node_exporter() -> Iterator[str]:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    program = require("prometheus-node-exporter")
    address = f"--web.listen-address=127.0.0.1:{port}"
    with subprocess.Popen([program, address], stderr=subprocess.DEVNULL) as process:
        try:
            yield f"http://127.0.0.1:{port}/metrics"
        finally:
            process.kill()


def of_node_exporter(url: str) -> Series:
    end = time.monotonic() + 30
    while True:
        try:
            with urllib.request.urlopen(url, timeout=10) as answer:
                text = answer.read().decode()
            break
        except OSError:
            if time.monotonic() > end:
                raise
            time.sleep(0.1)
    return {
        (NODE[sample.name], *sample.labels.values()): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
        if sample.name in NODE
    }


def test_counters_are_node_exporters(node_exporter: str) -> None:
    before = of_node_exporter(node_exporter)
    mine = ours()
    compared = between(before, mine, of_node_exporter(node_exporter))
    assert {key[0] for key in compared} == set(NODE.values())
