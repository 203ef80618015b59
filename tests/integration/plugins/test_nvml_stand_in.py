"""The NVML collector's own code and the real pynvml, over a driver's library of ours."""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from ray_sentinel_plugins._nvml import readings

if TYPE_CHECKING:
    from tests.integration.plugins.conftest import Drive

pytestmark = pytest.mark.integration

H100 = Path(__file__).parents[2] / "support" / "nvml_stand_in" / "h100.txt"
GPU0 = {
    "hw_gpu_temperature_celsius": 45,
    "hw_gpu_memory_temperature_celsius": 58,
    "hw_gpu_power_watts": 312.5,
    "hw_gpu_power_limit_watts": 700.0,
    "hw_gpu_energy_joules_total": 98765432.109,
    "hw_gpu_utilization_ratio": 0.97,
    "hw_gpu_memory_utilization_ratio": 0.41,
    "hw_gpu_vram_used_bytes": 68719476736,
    "hw_gpu_vram_total_bytes": 85520809984,
    "hw_gpu_ecc_corrected_total": 12,
    "hw_gpu_ecc_uncorrected_total": 1,
    "hw_gpu_pcie_replay_total": 7,
    "hw_gpu_pcie_tx_bytes_per_second": 1000 * 1024,
    "hw_gpu_pcie_rx_bytes_per_second": 2000 * 1024,
}


def of(gpu: str, series: dict[str, float]) -> dict[str, float]:
    return {name: value for name, value in series.items() if f'gpu="{gpu}"' in name}


def test_everything_of_a_gpu(drive: Drive, tmp_path: Path) -> None:
    device = tmp_path / "sys/bus/pci/devices/0000:3b:00.0"
    device.mkdir(parents=True)
    (device / "aer_dev_correctable").write_text("RxErr 3\nTOTAL_ERR_COR 3\n")
    (device / "aer_dev_fatal").write_text("DLP 0\nTOTAL_ERR_FATAL 0\n")
    series = drive(ranks=(4712, 9999)).collect()["series"]
    found = of("0", series)
    for name, value in GPU0.items():
        assert found[f'{name}{{gpu="0"}}'] == pytest.approx(value)
    assert found['hw_gpu_clock_mhz{gpu="0",type="sclk"}'] == 1980
    assert found['hw_gpu_clock_mhz{gpu="0",type="mclk"}'] == 2619
    assert found['hw_gpu_throttle_reason{gpu="0",reason="sw_power_cap"}'] == 1
    assert found['hw_gpu_throttle_reason{gpu="0",reason="sw_thermal_slowdown"}'] == 1
    assert found['hw_gpu_throttle_reason{gpu="0",reason="hw_slowdown"}'] == 0
    assert found['hw_gpu_remapped_rows_total{gpu="0",cause="uncorrectable"}'] == 1
    assert found['hw_gpu_row_remap_pending{gpu="0",cause="any"}'] == 1
    assert found['hw_gpu_nvlink_errors_total{gpu="0",link="1",kind="crc_flit"}'] == 5
    assert found['hw_gpu_pcie_correctable_total{gpu="0"}'] == 3
    assert found['hw_gpu_pcie_fatal_total{gpu="0"}'] == 0
    info = [name for name in found if name.startswith("hw_gpu_info")]
    assert info == [
        'hw_gpu_info{gpu="0",uuid="GPU-11111111-2222-3333-4444-555555555555",'
        'name="NVIDIA H100 80GB HBM3",vendor="nvidia",driver="570.158.01",pci="0000:3b:00.0"}'
    ]
    assert series["hw_gpu_user_processes"] == 3
    memory = [name for name in series if name.startswith("hw_gpu_process_memory")]
    assert memory == ['hw_gpu_process_memory_bytes{gpu="0",pid="4712"}'], "ranks only"


def test_what_a_card_does_not_have_is_absent(drive: Drive) -> None:
    found = of("1", drive().collect()["series"])
    names = {name.partition("{")[0] for name in found}
    assert names == {
        "hw_gpu_info",
        "hw_gpu_temperature_celsius",
        "hw_gpu_power_watts",
        "hw_gpu_utilization_ratio",
        "hw_gpu_memory_utilization_ratio",
        "hw_gpu_clock_mhz",
        "hw_gpu_vram_used_bytes",
        "hw_gpu_vram_total_bytes",
    }


@pytest.mark.parametrize("code", [2, 3, 4, 13, 999])
def test_any_field_may_fail(drive: Drive, code: int) -> None:
    """Each answer of GPU 0 in turn is an error; all others stay as they were."""
    driven = drive()
    whole = driven.collect()["series"]
    script = driven.script.read_text()
    keys = [line.split()[1] for line in script.splitlines() if line.startswith("0 nvml")]
    assert keys
    for key in keys:
        driven.script.write_text(f"0 {key} error {code}\n{script}")
        series = driven.collect()["series"]
        assert not {name for name in series if name not in whole and "hw_gpu_info" not in name}
        assert of("1", series) == of("1", whole), key
        left = [name for name in of("0", whole) if name in series]
        assert len(left) >= len(of("0", whole)) - len(readings.REASONS), key


@pytest.mark.parametrize("call", ["nvmlDeviceGetPowerUsage", "nvmlDeviceGetRemappedRows"])
def test_a_gpu_falls_off_the_bus_in_the_middle(drive: Drive, call: str) -> None:
    driven = drive()
    before = driven.collect()
    driven.rewrite(f"0 {call} lost")
    after = driven.collect()
    assert of("0", after["series"]) == {}, "whole or not at all"
    assert of("1", after["series"]) == of("1", before["series"])
    assert [event["kind"] for event in after["events"]] == ["gpu.lost"]
    assert after["events"][0]["attributes"]["pci"] == "0000:3b:00.0"
    again = driven.collect()
    assert again["events"] == [], "told once"
    assert of("0", again["series"]) == {}


def test_mig_devices(drive: Drive) -> None:
    driven = drive(
        "0 nvmlDeviceGetMigMode 1",
        "0 nvmlDeviceGetMaxMigDeviceCount 7",
        "0 nvmlDeviceGetUtilizationRates error 3",
        "0:0 nvmlDeviceGetUUID MIG-aaaa",
        "0:0 nvmlDeviceGetName NVIDIA H100 80GB HBM3 MIG 1g.10gb",
        "0:0 nvmlDeviceGetMemoryInfo 1000 10000",
        "0:3 nvmlDeviceGetUUID MIG-bbbb",
        "0:3 nvmlDeviceGetMemoryInfo 2000 40000",
    )
    series = driven.collect()["series"]
    assert series['hw_gpu_vram_used_bytes{gpu="0:0"}'] == 1000
    assert series['hw_gpu_vram_total_bytes{gpu="0:3"}'] == 40000
    assert 'hw_gpu_utilization_ratio{gpu="0"}' not in series
    infos = [name for name in series if name.startswith('hw_gpu_info{gpu="0:0"')]
    assert 'uuid="MIG-aaaa"' in infos[0]
    assert 'pci="0000:3b:00.0"' in infos[0]


def test_an_older_driver(drive: Drive, old_library: Path) -> None:
    driven = drive(
        "0 nvmlDeviceGetCurrentClocksThrottleReasons 8",
        "0 nvmlDeviceGetRemappedRows error 3",
        "0 nvmlDeviceGetRetiredPages.0 4",
        "0 nvmlDeviceGetRetiredPages.1 0",
        "0 nvmlDeviceGetRetiredPagesPendingStatus 1",
        lib=old_library,
    )
    series = driven.collect()["series"]
    assert series['hw_gpu_throttle_reason{gpu="0",reason="hw_slowdown"}'] == 1
    assert series['hw_gpu_vram_used_bytes{gpu="0"}'] == 68719476736
    assert series['hw_gpu_remapped_rows_total{gpu="0",cause="correctable"}'] == 4
    assert series['hw_gpu_row_remap_pending{gpu="0",cause="any"}'] == 1
    assert series["hw_gpu_user_processes"] == 3


def test_dear_calls_are_made_at_a_slower_rate(drive: Drive) -> None:
    driven = drive()
    first = driven.collect()["series"]
    driven.rewrite(
        "0 nvmlDeviceGetPcieThroughput.0 5555",
        "0 nvmlDeviceGetComputeRunningProcesses 1 1",
        "0 nvmlDeviceGetPowerUsage 1000",
    )
    second = driven.collect()["series"]
    assert second['hw_gpu_power_watts{gpu="0"}'] == 1.0
    dear = 'hw_gpu_pcie_tx_bytes_per_second{gpu="0"}'
    assert second[dear] == first[dear]
    assert second["hw_gpu_user_processes"] == first["hw_gpu_user_processes"]


def test_throughput_is_measured_by_turns(drive: Drive) -> None:
    more = [f"{gpu} nvmlDeviceGetPcieThroughput.0 {gpu}" for gpu in range(1, 5)]
    driven = drive("gpus 5", *more)
    tx = "hw_gpu_pcie_tx_bytes_per_second"
    measured = []
    for _ in range(3):
        found = driven.collect()["series"]
        measured.append(sorted(name.split('"')[1] for name in found if name.startswith(tx)))
    assert measured == [["0", "1"], ["0", "1", "2", "3"], ["0", "1", "2", "3", "4"]]


def test_xids_where_the_log_cannot_be_read(drive: Drive) -> None:
    driven = drive("1 xid 94", "1 xid 79", kmsg=False)
    told = driven.collect()
    assert told["series"]['hw_gpu_xid_errors_total{gpu="1",xid="79"}'] == 1
    assert [event["attributes"]["xid"] for event in told["events"]] == ["94", "79"]
    again = driven.collect()
    assert again["events"] == []
    assert again["series"]['hw_gpu_xid_errors_total{gpu="1",xid="94"}'] == 1
    restarted = drive(kmsg=False).collect()
    assert restarted["series"]['hw_gpu_xid_errors_total{gpu="1",xid="79"}'] == 1


def test_the_xid_of_a_gpu_that_is_lost_is_told_and_the_others_go_on(drive: Drive) -> None:
    driven = drive(kmsg=False)
    assert driven.collect()["events"] == []
    driven.rewrite("1 nvmlDeviceGetUtilizationRates lost", "1 xid 79")
    told = driven.collect()
    assert {event["kind"] for event in told["events"]} == {"gpu.lost", "kernel.xid"}
    assert told["series"]['hw_gpu_xid_errors_total{gpu="1",xid="79"}'] == 1
    assert 'hw_gpu_power_watts{gpu="0"}' in told["series"]


def test_xids_are_left_to_the_log_where_it_can_be_read(drive: Drive) -> None:
    told = drive("1 xid 79").collect()
    assert told["events"] == []
    assert not [name for name in told["series"] if "xid" in name]


def test_a_call_that_never_returns_hangs_only_this_process(drive: Drive) -> None:
    driven = drive()
    driven.collect()
    driven.rewrite("1 nvmlDeviceGetTemperature.0 hang")
    assert driven.process.stdin is not None
    driven.process.stdin.write("\n")
    driven.process.stdin.flush()
    ready, _, _ = select.select([driven.process.stdout], [], [], 1.0)
    assert not ready
    driven.process.kill()
    assert driven.process.wait(timeout=10) == -9


@pytest.mark.parametrize(
    ("lines", "why"), [(["gpus 0"], "shows no GPU"), (["driver absent"], "is not loaded")]
)
def test_nothing_to_see(drive: Drive, lines: list[str], why: str) -> None:
    assert why in drive(*lines).answer()["skip"]


def command(library: Path, script: Path, *options: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "ray_sentinel.cli.main", "collect", "nvml", "--json", *options],
        env={**os.environ, "LD_LIBRARY_PATH": str(library), "NVML_STAND_IN": str(script)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_by_the_command(library: Path) -> None:
    done = command(library, H100)
    assert done.returncode == 0, done.stderr
    assert "hw_gpu_power_watts" in json.dumps(json.loads(done.stdout))


def test_the_command_gives_up_on_a_call_that_never_returns(library: Path, tmp_path: Path) -> None:
    script = tmp_path / "script"
    script.write_text("0 nvmlDeviceGetUtilizationRates hang\n" + H100.read_text())
    done = command(library, script, "--deadline", "1")
    assert done.returncode == 1
    assert json.loads(done.stdout)["success"] is False
