"""The rdma collector: states, counters and their units."""

from __future__ import annotations

import errno
import shutil
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from ray_sentinel.api import Absent, Context, Skip
from ray_sentinel_plugins import _files, rdma
from ray_sentinel_plugins._rdma_names import COUNTERS
from ray_sentinel_plugins.rdma import RdmaCollector

Series = dict[str, float]
DEVICE = '{device="dev0",port="1"}'


@pytest.fixture
def port(tmp_path: Path) -> Path:
    folder = tmp_path / "sys/class/infiniband/dev0/ports/1"
    folder.mkdir(parents=True)
    return folder


@pytest.fixture
def collect(
    tmp_path: Path, context: Callable[..., Context], series: Callable[..., Series]
) -> Callable[[], Series]:
    return lambda: series(RdmaCollector(context(tmp_path)).collect())


def put(folder: Path, **files: object) -> None:
    folder.mkdir(exist_ok=True)
    for name, value in files.items():
        (folder / name).write_text(f"{value}\n")


@pytest.mark.parametrize(
    ("line", "active"),
    [
        ("4: ACTIVE", True),
        ("1: DOWN", False),
        ("2: INIT", False),
        ("5: ACTIVE_DEFER", False),
        ("0: NOP", False),
        ("ACTIVE", None),
        ("", None),
        ("44: ACTIVE", None),
    ],
)
def test_state(line: str, active: bool | None) -> None:
    assert rdma.parse_state(line) is active


def test_a_device_that_has_gone_is_served_no_more(
    port: Path, tmp_path: Path, context: Callable[..., Context]
) -> None:
    put(port, state="4: ACTIVE")
    collector = RdmaCollector(context(tmp_path))
    assert list(collector.collect())
    shutil.rmtree(tmp_path / "sys/class/infiniband/dev0")
    with pytest.raises(Absent):
        list(collector.collect())


def test_words_become_bytes(port: Path, collect: Callable[[], Series]) -> None:
    put(port / "counters", port_rcv_data=2**62, port_xmit_packets=2**64 - 1)
    assert collect() == {
        f"hw_rdma_rx_bytes_total{DEVICE}": 2**64,
        f"hw_rdma_tx_pkts_total{DEVICE}": 2**64 - 1,
    }


def test_32_bit_counters_that_stopped(port: Path, collect: Callable[[], Series]) -> None:
    put(port / "counters", port_rcv_data=2**32 - 1, port_xmit_data=2**32 - 1)
    put(port / "counters_ext", port_rcv_data_64=2**40)
    assert collect() == {
        f"hw_rdma_rx_bytes_total{DEVICE}": 4 * 2**40,
        f"hw_rdma_tx_bytes_total{DEVICE}": 4 * (2**32 - 1),
    }


def test_a_sum_needs_all_its_parts(port: Path, collect: Callable[[], Series]) -> None:
    put(port / "hw_counters", ip4InOctets=5, ip6InOctets="x", ip4OutOctets=5)
    assert collect() == {}


def test_a_source_that_fails_is_not_replaced(port: Path, collect: Callable[[], Series]) -> None:
    put(port / "counters", port_rcv_data="garbage")
    put(port / "hw_counters", rx_bytes=100)
    assert collect() == {}


def test_a_source_that_the_port_lacks_is(port: Path, collect: Callable[[], Series]) -> None:
    put(port / "counters", port_rcv_data="N/A (no PMA)")
    put(port / "hw_counters", rx_bytes=100)
    assert collect() == {f"hw_rdma_rx_bytes_total{DEVICE}": 100}


def test_pma_files_that_the_driver_refuses(
    port: Path, collect: Callable[[], Series], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As posted in prometheus/procfs#675: each of bnxt_re's PMA files answers EINVAL."""
    put(port / "counters", port_rcv_data=1, link_downed=1)
    put(port / "hw_counters", rx_bytes=7521781137064)
    real = _files.read_file

    def refuse(path: Path, limit: int) -> bytes:
        if path.parent.name == "counters":
            raise OSError(errno.EINVAL, "Invalid argument")
        return real(path, limit)

    monkeypatch.setattr(_files, "read_file", refuse)
    assert collect() == {f"hw_rdma_rx_bytes_total{DEVICE}": 7521781137064}


def test_a_copy_of_refused_files_is_empty(port: Path, collect: Callable[[], Series]) -> None:
    put(port / "hw_counters", rx_bytes=7521781137064)
    (port / "counters").mkdir()
    for name in ("port_rcv_data", "link_downed"):
        (port / "counters" / name).touch()
    assert collect() == {f"hw_rdma_rx_bytes_total{DEVICE}": 7521781137064}
    # One among others is damaged: the driver's count of the same might jump.
    put(port / "counters", link_downed=3)
    assert collect() == {f"hw_rdma_link_downed_total{DEVICE}": 3}


def test_counters_of_the_device_are_its_only_ports(
    tmp_path: Path, port: Path, collect: Callable[[], Series]
) -> None:
    put(port.parents[1] / "hw_counters", rx_bytes=7)
    assert collect() == {f"hw_rdma_rx_bytes_total{DEVICE}": 7}
    put(port.parent / "2", state="4: ACTIVE")
    assert collect() == {'hw_rdma_port_state{device="dev0",port="2"}': 1}


def test_no_rdma(tmp_path: Path, collect: Callable[[], Series]) -> None:
    with pytest.raises(Skip, match="infiniband"):
        collect()
    (tmp_path / "sys/class/infiniband").mkdir(parents=True)
    with pytest.raises(Absent):
        collect()


def test_hostile_and_many_devices(tmp_path: Path, collect: Callable[[], Series]) -> None:
    root = tmp_path / "sys/class/infiniband"
    for name in ['a\n"b', *(f"dev{number}" for number in range(rdma.MAX_DEVICES + 50))]:
        put_port = root / name / "ports/1"
        put_port.mkdir(parents=True)
        (put_port / "state").write_text("4: ACTIVE\n")
    found = collect()
    assert len(found) == rdma.MAX_DEVICES
    assert 'hw_rdma_port_state{device="a�"b",port="1"}' in found


def test_a_wedged_adapter_takes_no_other_with_it(
    tmp_path: Path,
    series: Callable[..., Series],
    monkeypatch: pytest.MonkeyPatch,
    hanging: Callable[..., threading.Event],
) -> None:
    gate = hanging("dev1")
    real = rdma.read_device

    def read(files: rdma.Files, device: Path) -> list[rdma.Sample]:
        if device.name == "dev1":
            gate.wait(30)
        return real(files, device)

    monkeypatch.setattr(rdma, "read_device", read)
    for number in range(3):
        folder = tmp_path / f"sys/class/infiniband/dev{number}/ports/1"
        folder.mkdir(parents=True)
        (folder / "state").write_text("4: ACTIVE\n")
    found = series(RdmaCollector(Context(sys=tmp_path / "sys")).collect())
    assert {name.split('"')[1] for name in found} == {"dev0", "dev2"}


def test_every_source_names_a_folder() -> None:
    for sources in COUNTERS.values():
        for source in sources:
            assert all(name.split("/")[0] in ("counters", "hw_counters") for name in source.files)
