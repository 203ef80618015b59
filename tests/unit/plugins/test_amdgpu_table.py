"""AMD's metrics table: energy and throttling, by revision."""

from __future__ import annotations

import struct
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from ray_sentinel.api import Context
from ray_sentinel_plugins._amdgpu import table
from ray_sentinel_plugins.amdgpu import AmdgpuCollector

Series = dict[str, float]

SIZES = {
    **{(1, 0): 80, (1, 1): 96, (1, 2): 104, (1, 3): 120, (1, 4): 288},
    **{(1, 5): 360, (1, 6): 1664, (1, 7): 2208, (1, 8): 3360},
}
"""As drivers make them."""


def made(version: tuple[int, int], **fields: tuple[int, str, int]) -> bytes:
    """A table in which only the given fields are filled: name → (offset, format, value)."""
    size = SIZES[version]
    data = bytearray(b"\xff" * size)
    struct.pack_into("<HBB", data, 0, size, *version)
    for at, form, value in fields.values():
        struct.pack_into(form, data, at, value)
    return bytes(data)


@pytest.mark.parametrize("version", table.ENERGY_AT)
def test_energy(version: tuple[int, int]) -> None:
    data = made(version, energy=(table.ENERGY_AT[version], "<Q", 3 * 2**16))
    assert table.parse(data, "0x74a1") == table.MetricsTable(joules=3.0)
    assert table.parse(made(version), "0x74a1") == table.MetricsTable(), "nothing is filled in"


def test_the_unit_of_revision_3_is_known_of_mi200_only() -> None:
    data = made((1, 3), energy=(24, "<Q", 2**16), status=(112, "<Q", 0))
    mi200 = table.parse(data, "0x740f")
    navi = table.parse(data, "0x73bf")
    assert mi200 is not None
    assert navi is not None
    assert (mi200.joules, navi.joules) == (1.0, None)
    assert navi.throttled == dict.fromkeys(table.KINDS, False)


def test_status_by_kind() -> None:
    found = table.parse(made((1, 3), status=(112, "<Q", 1 << 2 | 1 << 36)), "0x740f")
    assert found is not None
    assert found.throttled == {"power": True, "current": False, "thermal": True, "other": False}


@pytest.mark.parametrize(
    ("bits", "thermal"),
    [
        ((36,), None),  # what a Radeon of RDNA 3 or 4 always says, be it idle at 37 °C
        ((36, 0), None),  # the same card at its power cap
        ((36, 34), True),
        ((35,), True),
        ((0,), False),
        ((), False),
    ],
)
def test_a_radeons_hot_spot_alone_says_nothing(bits: tuple[int, ...], thermal: bool | None) -> None:
    found = table.parse(made((1, 3), status=(112, "<Q", sum(1 << bit for bit in bits))), "0x744c")
    assert found is not None
    assert found.throttled.get("thermal") is thermal
    assert found.throttled["power"] is (0 in bits)


def residency(power: int, socket: int) -> table.MetricsTable:
    at = table.RESIDENCY_AT[1, 7]
    values = (0, power, socket, 0, 0)
    fields = {str(i): (at + 4 * i, "<I", value) for i, value in enumerate(values)}
    found = table.parse(made((1, 7), **fields), "")
    assert found is not None
    return found


def test_what_accumulates_is_held_while_it_grows() -> None:
    first, second = residency(100, 5), residency(101, 5)
    assert list(table.samples(first, None, "0")) == []
    held = {s.labels[1][1]: s.value for s in table.samples(second, first, "0")}
    assert held == {"prochot": 0, "power": 1, "thermal": 0}


@pytest.mark.parametrize("version", [(1, 6), (1, 7), (1, 8)])
def test_a_throttler_that_never_rested_is_not_believed(version: tuple[int, int]) -> None:
    """As an idle MI300X of an earlier driver had it: three of five are the counter of looks."""
    at = table.RESIDENCY_AT[version] - 4
    looks = 10_657_785
    values = (looks, 0, looks, looks, 0, looks)
    fields = {str(i): (at + 4 * i, "<I", value) for i, value in enumerate(values)}
    found = table.parse(made(version, **fields), "0x74a1")
    assert found is not None
    assert found.residency == {"prochot": 0}


def test_revision_6_is_shorter_where_the_driver_appends_nothing() -> None:
    data = bytearray(made((1, 6), energy=(16, "<Q", 2**16))[:312])
    struct.pack_into("<H", data, 0, 312)
    assert table.parse(bytes(data), "0x74a1") == table.MetricsTable(joules=1.0)


@pytest.mark.parametrize("version", [(1, 0), (2, 2), (3, 0)])
def test_of_early_cards_and_apus_nothing_is_told(version: tuple[int, int]) -> None:
    assert table.parse(struct.pack("<HBB", 80, *version) + b"\1" * 76, "") == table.MetricsTable()


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\0",
        made((1, 7))[:-1],
        b"\xff" * 3000,
        struct.pack("<HBBi", 8, 1, 9, 3),
        struct.pack("<HBB", 120, 9, 9) * 30,
    ],
)
def test_what_is_no_table(data: bytes) -> None:
    assert table.parse(data, "0x740f") is None


AMDSMI = """
class AmdSmiException(Exception): pass
def amdsmi_init(): {init}
def amdsmi_shut_down(): pass
def amdsmi_get_processor_handles(): return ["a", "b"]
def amdsmi_get_gpu_device_bdf(handle): return "0000:03:00.0" if handle == "a" else "0000:04:00.0"
def amdsmi_get_energy_count(handle):
    if handle == "b": raise AmdSmiException("not supported")
    return {{"energy_accumulator": 1000000, "counter_resolution": 15.3, "timestamp": 1}}
"""


@pytest.fixture
def gpus(tmp_path: Path) -> Path:
    for number in (3, 4):
        device = tmp_path / f"sys/class/drm/card{number}/device"
        device.mkdir(parents=True)
        (device / "vendor").write_text("0x1002\n")
        (device / "uevent").write_text(f"DRIVER=amdgpu\nPCI_SLOT_NAME=0000:0{number}:00.0\n")
    return tmp_path


@pytest.fixture
def energy_of(
    gpus: Path, monkeypatch: pytest.MonkeyPatch, series: Callable[..., Series]
) -> Iterator[Callable[[str], Series]]:
    """The energies that are told where ``amdsmi`` is a module of that source."""

    def collect(source: str) -> Series:
        packages = gpus / "packages"
        packages.mkdir()
        (packages / "amdsmi.py").write_text(source)
        monkeypatch.syspath_prepend(str(packages))
        monkeypatch.delitem(sys.modules, "amdsmi", raising=False)
        collector = AmdgpuCollector(Context(sys=gpus / "sys", proc=gpus / "proc"))
        found = series(collector.collect())
        collector.close()
        return {name: value for name, value in found.items() if "energy" in name}

    yield collect
    monkeypatch.delitem(sys.modules, "amdsmi", raising=False)


@pytest.mark.parametrize(
    ("source", "energies"),
    [
        (AMDSMI.format(init="pass"), {'hw_gpu_energy_joules_total{gpu="0"}': 15.3}),
        (AMDSMI.format(init="raise AmdSmiException('no driver')"), {}),
        ("raise KeyError('ROCM')", {}),
        ("raise OSError('libamd_smi.so')", {}),
    ],
)
def test_amdsmi_where_it_is_installed(
    source: str, energies: Series, energy_of: Callable[[str], Series]
) -> None:
    assert energy_of(source) == pytest.approx(energies)


@pytest.mark.parametrize("version", [(1, 0), (1, 1), (1, 2), (1, 3)])
def test_amdsmi_is_not_asked_for_a_unit_that_the_table_does_not_say(
    version: tuple[int, int], gpus: Path, energy_of: Callable[[str], Series]
) -> None:
    data = made(version, energy=(24, "<Q", 65536))
    (gpus / "sys/class/drm/card3/device/gpu_metrics").write_bytes(data)
    assert energy_of(AMDSMI.format(init="pass")) == {}
