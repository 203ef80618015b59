"""The amdgpu collector: cards, sensors and RAS counters."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import wait
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from ray_sentinel.api import Context, Skip
from ray_sentinel.bounded import Bounded
from ray_sentinel_plugins._amdgpu import ras, sensors
from ray_sentinel_plugins.amdgpu import AmdgpuCollector, AmdgpuOptions

Series = dict[str, float]


def card(root: Path, number: int, pci: str = "", vendor: str = "0x1002", **files: str) -> Path:
    device = root / f"sys/class/drm/card{number}/device"
    contents = {"vendor": vendor, "uevent": f"DRIVER=amdgpu\nPCI_SLOT_NAME={pci}", **files}
    for name, text in contents.items():
        path = device / name.replace("__", "/")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"{text}\n" if text else "")
    return device


@pytest.fixture
def collect(
    tmp_path: Path, context: Callable[..., Context], series: Callable[..., Series]
) -> Callable[[], Series]:
    return lambda: series(AmdgpuCollector(context(tmp_path)).collect())


def test_indices_follow_the_bus(tmp_path: Path, collect: Callable[[], Series]) -> None:
    card(tmp_path, 0, "0000:c2:00.0", vendor="0x1a03", uevent="DRIVER=ast")
    card(tmp_path, 1, "0000:c1:00.0", gpu_busy_percent="10")
    card(tmp_path, 2, "0000:05:00.0", gpu_busy_percent="20")
    card(tmp_path, 10, "0001:01:00.0", gpu_busy_percent="30")
    (tmp_path / "sys/class/drm/card1-DP-1").mkdir()
    (tmp_path / "sys/class/drm/renderD128/device").mkdir(parents=True)
    busy = {name: value for name, value in collect().items() if "gpu_utilization" in name}
    assert busy == {
        'hw_gpu_utilization_ratio{gpu="0"}': 0.2,
        'hw_gpu_utilization_ratio{gpu="1"}': 0.1,
        'hw_gpu_utilization_ratio{gpu="2"}': 0.3,
    }


def test_one_card_that_cannot_be_told_moves_no_other(
    tmp_path: Path, collect: Callable[[], Series]
) -> None:
    for number in range(4):
        card(tmp_path, number, f"0000:0{number}:00.0", gpu_busy_percent=str(number))
    whole = collect()
    (tmp_path / "sys/class/drm/card1/device/vendor").write_text("garbage\n")
    (tmp_path / "sys/class/drm/card2/device/uevent").unlink()
    busy = {name: value for name, value in collect().items() if "utilization" in name}
    assert busy.items() <= whole.items()
    assert len(busy) == 4


def test_an_edge_alone_serves(tmp_path: Path, collect: Callable[[], Series]) -> None:
    edge = {"hwmon__hwmon1__temp1_label": "edge", "hwmon__hwmon1__temp1_input": "55000"}
    card(tmp_path, 0, "0000:03:00.0", **edge)
    assert collect()['hw_gpu_temperature_celsius{gpu="0"}'] == 55.0


@pytest.mark.parametrize("label", ["junction", "", "jun"])
def test_an_edge_never_stands_for_the_junction(
    tmp_path: Path, label: str, collect: Callable[[], Series]
) -> None:
    edge = {"hwmon__hwmon1__temp1_label": "edge", "hwmon__hwmon1__temp1_input": "55000"}
    card(tmp_path, 0, "0000:03:00.0", hwmon__hwmon1__temp2_label=label, **edge)
    assert 'hw_gpu_temperature_celsius{gpu="0"}' not in collect()


def test_power_of_the_moment_or_average(tmp_path: Path, collect: Callable[[], Series]) -> None:
    card(tmp_path, 0, "0000:03:00.0", hwmon__hwmon1__power1_input="100000000")
    card(tmp_path, 1, "0000:04:00.0", hwmon__hwmon1__power1_average="200000000")
    found = collect()
    assert found['hw_gpu_power_watts{gpu="0"}'] == 100.0
    assert found['hw_gpu_power_watts{gpu="1"}'] == 200.0


def test_clocks_without_sensors(tmp_path: Path, collect: Callable[[], Series]) -> None:
    levels = "0: 132Mhz \n1: 2100Mhz *\n2: 2200Mhz "
    card(tmp_path, 0, "0000:03:00.0", pp_dpm_sclk=levels, pp_dpm_mclk="0: 900Mhz ")
    found = collect()
    assert found['hw_gpu_clock_mhz{gpu="0",type="sclk"}'] == 2100.0
    assert 'hw_gpu_clock_mhz{gpu="0",type="mclk"}' not in found


BUSY = "Query currently inaccessible"


def test_both_forms_of_error_counts(tmp_path: Path, collect: Callable[[], Series]) -> None:
    card(
        tmp_path,
        0,
        "0000:03:00.0",
        ras__umc_err_count=BUSY,
        ras__aca_umc="ue: 1\nce: 7\nde: 2",
        ras__gfx_err_count="ue: 0\nce: 3",
        ras__xgmi_wafl_err_count="ue: 0\nce: 4",
        ras__features="feature mask: 0x83f",
    )
    found = collect()
    assert found['hw_gpu_ras_umc_ce_total{gpu="0"}'] == 7
    assert found['hw_gpu_ras_xgmi_ce_total{gpu="0"}'] == 4
    assert found['hw_gpu_ecc_corrected_total{gpu="0"}'] == 14
    assert found['hw_gpu_ecc_uncorrected_total{gpu="0"}'] == 1


@pytest.mark.parametrize(
    ("status", "told"),
    [("active", True), ("unsupported", True), ("suspended", False), ("resuming", False)],
)
def test_a_sleeping_gpu_is_not_asked_for_its_errors(
    tmp_path: Path, status: str, told: bool, collect: Callable[[], Series]
) -> None:
    counts = {"ras__umc_err_count": "ue: 1048560\nce: 1048560\nde: 0"}
    pages = {"ras__gpu_vram_bad_pages": "0x027f5d43 : 0x00001000 : R"}
    card(tmp_path, 0, "0000:03:00.0", power__runtime_status=status, **counts, **pages)
    found = collect()
    assert any("ras_umc" in name for name in found) is told
    assert any("ecc_uncorrected" in name for name in found) is told
    assert found['hw_gpu_remapped_rows_total{gpu="0",cause="bad_page"}'] == 1


def test_no_sum_while_a_block_is_silent(
    tmp_path: Path, context: Callable[..., Context], series: Callable[..., Series]
) -> None:
    counts = {"ras__umc_err_count": "ue: 0\nce: 5", "ras__gfx_err_count": "ue: 0\nce: 3"}
    device = card(tmp_path, 0, "0000:03:00.0", **counts)
    collector = AmdgpuCollector(context(tmp_path))
    total = 'hw_gpu_ecc_corrected_total{gpu="0"}'
    assert series(collector.collect())[total] == 8
    (device / "ras/gfx_err_count").write_text(f"{BUSY}\n")
    found = series(collector.collect())
    assert total not in found
    assert found['hw_gpu_ras_umc_ce_total{gpu="0"}'] == 5
    (device / "ras/gfx_err_count").unlink()
    assert total not in series(collector.collect()), "it was there before"


@pytest.mark.parametrize(
    ("module", "function", "hidden", "shown"),
    [
        (ras, "read", "hw_gpu_ras_umc_ce_total", "hw_gpu_utilization_ratio"),
        (sensors, "read", "hw_gpu_utilization_ratio", "hw_gpu_ras_umc_ce_total"),
    ],
)
def test_what_hangs_hides_nothing_else(
    tmp_path: Path,
    module: ModuleType,
    function: str,
    hidden: str,
    shown: str,
    series: Callable[..., Series],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    counts = {"ras__umc_err_count": "ue: 0\nce: 5", "gpu_busy_percent": "50"}
    for number in range(2):
        card(tmp_path, number, f"0000:0{number}:00.0", **counts)
    gate = threading.Event()
    real = getattr(module, function)

    def read(files: Any, device: Path, *rest: Any) -> Any:
        if "card1" in str(device):
            gate.wait(30)
        return real(files, device, *rest)

    monkeypatch.setattr(module, function, read)
    options = AmdgpuOptions(amdsmi=False, gpu_deadline=2.0, ras_deadline=1.0)
    collector = AmdgpuCollector(Context(sys=tmp_path / "sys", proc=tmp_path, options=options))
    deadline = options.ras_deadline if module is ras else options.gpu_deadline

    def ended_within(bounded: Bounded[Any, Any], key: str, call: Any, _seconds: float) -> bool:
        is_stuck = (bounded.seconds, key) == (deadline, "1")
        return not is_stuck and bool(wait([call], 30).done)

    monkeypatch.setattr(Bounded, "ended_within", ended_within)
    found = series(collector.collect())
    assert f'{hidden}{{gpu="0"}}' in found
    assert f'{hidden}{{gpu="1"}}' not in found
    assert f'{shown}{{gpu="1"}}' in found
    gate.set()


def test_no_amd_gpu(tmp_path: Path, context: Callable[..., Context]) -> None:
    card(tmp_path, 0, "0000:c2:00.0", vendor="0x10de", uevent="DRIVER=nvidia")
    with pytest.raises(Skip, match="no AMD GPU"):
        AmdgpuCollector(context(tmp_path))


def test_processes(tmp_path: Path, collect: Callable[[], Series]) -> None:
    card(tmp_path, 0, "0000:03:00.0")
    assert "hw_gpu_user_processes" not in collect()
    for name in ("4711", "4712", "not-a-pid"):
        (tmp_path / "sys/class/kfd/kfd/proc" / name).mkdir(parents=True)
    assert collect()["hw_gpu_user_processes"] == 2
