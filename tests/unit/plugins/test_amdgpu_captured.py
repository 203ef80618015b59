"""Files of real cards; where they come from is in ``tests/fixtures/amdgpu/README.md``."""

from __future__ import annotations

import struct
from collections.abc import Callable
from pathlib import Path

import pytest

from ray_sentinel.api import Context
from ray_sentinel_plugins._amdgpu import ras, table
from ray_sentinel_plugins.amdgpu import AmdgpuCollector

CAPTURED = Path(__file__).parents[2] / "fixtures" / "amdgpu"
MI100, MI210 = "0x738c", "0x740f"


def bytes_of(name: str) -> bytes:
    """What ``hexdump -C`` was given: a line that equals the one before it is shown as ``*``."""
    data = bytearray()
    for line in (CAPTURED / name).read_text().splitlines():
        offset, _, rest = line.partition("  ")
        if offset != "*":
            data += data[-16:] * ((int(offset, 16) - len(data)) // 16)
            assert len(data) == int(offset, 16)
            data += bytes.fromhex(rest.partition("|")[0])
    return bytes(data)


@pytest.mark.parametrize(
    ("name", "ticks", "said"), [("mi100", 59231, 0.906), ("mi100-later", 59601, 0.912)]
)
def test_energy_lies_where_amds_own_tools_find_it(name: str, ticks: int, said: float) -> None:
    data = bytes_of(f"{name}.hexdump")
    assert len(data) == 120
    found = table.parse(data, MI210)
    assert found is not None
    assert found.joules == ticks * table.ENERGY_UNIT
    # amd-smi rounds the unit to 15.3 µJ, whatever the card.
    assert found.joules == pytest.approx(said, rel=0.005)


def test_the_energy_of_an_mi100_is_in_another_unit() -> None:
    """Which is why none is told: at the power that it says itself the card drew 370 J."""
    tables = [bytes_of(name) for name in ("mi100.hexdump", "mi100-later.hexdump")]
    found = [table.parse(data, MI100) for data in tables]
    assert [one and one.joules for one in found] == [None, None]
    clocks = [struct.unpack_from("<Q", data, 32)[0] / 1e9 for data in tables]
    watts = [struct.unpack_from("<H", data, 22)[0] for data in tables]
    assert watts == [36, 35]
    assert sum(watts) / 2 * (clocks[1] - clocks[0]) == pytest.approx(370, rel=0.02)


def test_a_card_at_rest(
    tmp_path: Path, context: Callable[..., Context], series: Callable[..., dict[str, float]]
) -> None:
    device = tmp_path / "sys/class/drm/card1/device"
    (device / "ras").mkdir(parents=True)
    texts = {"vendor": "0x1002\n", "device": f"{MI100}\n", "uevent": "DRIVER=amdgpu\n"}
    for name, text in texts.items():
        (device / name).write_text(text)
    (device / "gpu_metrics").write_bytes(bytes_of("mi100.hexdump"))
    (device / "ras/gpu_vram_bad_pages").write_bytes((CAPTURED / "gpu_vram_bad_pages").read_bytes())
    found = series(AmdgpuCollector(context(tmp_path)).collect())
    throttled = {name: value for name, value in found.items() if "throttle" in name}
    assert throttled == {
        f'hw_gpu_throttle_reason{{gpu="0",reason="{kind}"}}': 0 for kind in table.KINDS
    }
    assert found['hw_gpu_remapped_rows_total{gpu="0",cause="bad_page"}'] == 8
    assert found['hw_gpu_row_remap_pending{gpu="0",cause="bad_page"}'] == 0
    assert not any("energy" in name for name in found)


def test_bad_pages() -> None:
    assert ras.parse_pages((CAPTURED / "gpu_vram_bad_pages").read_text()) == {"R": 8}
