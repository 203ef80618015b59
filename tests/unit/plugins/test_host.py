"""The host collector, on trees that are odd, old or incomplete."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path

import pytest

from ray_sentinel.api import Context, NoData
from ray_sentinel_plugins._files import Files
from ray_sentinel_plugins._host import (
    disks,
    identity,
    kernel,
    network,
    pressure,
)
from ray_sentinel_plugins.host import HostCollector
from tests.support.files import write

LOG = logging.getLogger("test")
Series = dict[str, float]


# Network


def test_devices_with_odd_names() -> None:
    row = " ".join(str(number) for number in range(16))
    text = (
        f"Inter-|\n face |bytes\n  eth0:1:{row}\nib0: {row}\n bad: 1 2\n none\n x: {row[:-2]} -1\n"
    )
    assert parse_names(text) == ["eth0:1", "ib0"]


def parse_names(text: str) -> list[str]:
    return list(network.parse_dev(text))


def test_ten_thousand_devices_are_bounded(tmp_path: Path) -> None:
    row = "1 0 0 0 0 0 0 0 2 0 0 0 0 0 0 0"
    lines = [f"veth{number}: {row}" for number in range(10_000)] + [f"eth0: {row}", f'e"\\: {row}']
    write(tmp_path / "net/dev", "\n".join(lines) + "\n")
    samples = list(network.read(Files(LOG), tmp_path))
    assert len(samples) == network.MAX_DEVICES * len(network.DEVICE)
    assert samples[0].labels == (("device", 'e"\\'),)
    assert any(sample.labels == (("device", "eth0"),) for sample in samples)


def test_a_tree_whose_link_leads_nowhere(tmp_path: Path) -> None:
    (tmp_path / "net").symlink_to("/nowhere")
    write(tmp_path / "self/net/dev", "eth0: 1 0 0 0 0 0 0 0 2 0 0 0 0 0 0 0\n")
    assert next(network.read(Files(LOG), tmp_path)).value == 1


def test_protocol_tables_need_their_header() -> None:
    assert network.parse_snmp("Tcp: 1 2 3\n") == {}
    assert network.parse_snmp("Tcp: A B C\nTcp: 1 -1 x\n") == {("Tcp", "A"): 1}
    assert network.parse_snmp("Tcp: A B\nUdp: 1 2\n") == {}


# CPU and memory


def test_old_kernels_have_fewer_modes() -> None:
    assert kernel.parse_cpu("cpu  1 2 3 4\ncpu0 1 2 3 4\n") == {
        "user": 1,
        "nice": 2,
        "system": 3,
        "idle": 4,
    }


@pytest.mark.parametrize(
    ("line", "load"), [("0.20 0.18 0.12 1/80 11206", 0.2), ("999", None), ("x 1 2", None)]
)
def test_load(line: str, load: float | None) -> None:
    assert kernel.parse_load(line) == load


# Disks


@pytest.mark.parametrize(
    ("name", "whole"),
    [
        ("sda", True),
        ("sda1", False),
        ("sdaa", True),
        ("nvme0n1", True),
        ("nvme0n1p1", False),
        ("nvme0c0n1", False),
        ("mmcblk0", True),
        ("mmcblk0p2", False),
        ("xvda1", True),
        ("vdb", True),
        ("dm-3", False),
        ("md127", False),
        ("loop0", False),
        ("zram0", False),
        ("sr0", False),
        ("rbd0", True),
        ("rbd0p1", False),
        ("pmem0", True),
        ("cciss!c0d0", True),
        ("cciss!c0d0p1", False),
        ("bcache0", False),
        ("zd16", False),
    ],
)
def test_whole_disks(name: str, whole: bool) -> None:
    present = {"sda", "sdaa", "nvme0n1", "mmcblk0", "vdb", "rbd0", "pmem0", "cciss!c0d0", name}
    assert disks.whole_disk(name, present) is whole


def test_old_partition_lines_have_seven_columns() -> None:
    assert disks.parse_diskstats("8 1 sda1 10 20 30 40\n8 0 sda 1 2 3 4 5 6 7 8 9 10 11\n") == {
        "sda": disks.DiskCounters(3 * 512, 7 * 512, 10)
    }


# Pressure


def test_pressure_out_of_range_is_left_out() -> None:
    text = "some avg10=120.00 avg60=x avg300=0.10 total=-5\nfull avg10=0.00 avg10\n"
    assert pressure.parse_pressure(text) == {("some", "avg300"): 0.1, ("full", "avg10"): 0.0}


# Identity


def test_identity_of_a_captured_tree(tmp_path: Path) -> None:
    write(tmp_path / "proc/version", "Linux version 5.15.0-91-generic (buildd@x) (gcc) #101\n")
    write(tmp_path / "sys/module/nvidia/version", "535.129.03\n")
    (sample,) = identity.read(Files(LOG, live=False), tmp_path / "proc", tmp_path / "sys")
    assert [value for _, value in sample.labels] == ["5.15.0-91-generic", "", "535.129.03", ""]


def test_os_release() -> None:
    assert identity.parse_os_release('NAME="x"\nPRETTY_NAME="Debian GNU/Linux 12"\n') == (
        "Debian GNU/Linux 12"
    )
    assert identity.parse_os_release("NAME=x\n") is None


# All together


def test_this_machine() -> None:
    names = {sample.name for sample in HostCollector(Context()).collect()}
    assert {"hw_cpu_seconds_total", "hw_mem_total_bytes", "hw_load1", "hw_host_info"} <= names
    assert "hw_disk_total_bytes" in names
    assert names <= {metric.name for metric in HostCollector.metrics}


def test_an_empty_tree(tmp_path: Path, context: Callable[..., Context]) -> None:
    with pytest.raises(NoData):
        list(HostCollector(context(tmp_path)).collect())


def test_a_copied_tree_whose_self_leads_nowhere(
    tmp_path: Path, context: Callable[[Path], Context], series: Callable[..., dict[str, float]]
) -> None:
    (tmp_path / "proc/1/net").mkdir(parents=True)
    (tmp_path / "proc/self").symlink_to("4711")
    (tmp_path / "proc/net").symlink_to("self/net")
    row = " ".join(str(column) for column in range(1, 17))
    (tmp_path / "proc/1/net/dev").write_text(f" bond0: {row}\n")
    found = series(HostCollector(context(tmp_path)).collect())
    assert found['hw_net_tx_bytes_total{device="bond0"}'] == 9


def test_tables_of_the_only_process_that_was_kept(
    tmp_path: Path, context: Callable[[Path], Context], series: Callable[..., dict[str, float]]
) -> None:
    """sosreport keeps the tables of its own process; ``self`` may not have come along."""
    row = " ".join(str(column) for column in range(1, 17))

    def keep(pid: str) -> None:
        (tmp_path / "proc" / pid / "net").mkdir(parents=True)
        (tmp_path / "proc" / pid / "net/dev").write_text(f" eth0: {row}\n")

    keep("3255")
    found = series(HostCollector(context(tmp_path)).collect())
    assert found['hw_net_rx_bytes_total{device="eth0"}'] == 1
    keep("3256")
    # Which of two network namespaces is the machine's is not known.
    with pytest.raises(NoData):
        list(HostCollector(context(tmp_path)).collect())
