"""A node's files, made up in a folder, are read."""

from __future__ import annotations

from pathlib import Path

import pytest

from ray_sentinel.inspection.gpus import gpus_here, pci_addresses
from ray_sentinel.inspection.node import versions_here
from ray_sentinel.inspection.rdma import device_traffic
from ray_sentinel.inspection.session_logs import last_errors, transport_lines
from ray_sentinel.logs.catalogue import load_catalogue
from ray_sentinel.progress.proc.blocked import blocked_tasks
from tests.support.files import write

MI300X = Path(__file__).parents[2] / "fixtures/trees/mi300x-aca"


def stat(pid: int, state: str, flags: int = 0) -> str:
    return f"{pid} (py (x) thon) {state} 1 {pid} {pid} 0 -1 {flags} 0 0 0 0"


def test_blocked_tasks(tmp_path: Path) -> None:
    write(tmp_path / "7/task/7/stat", stat(7, "S"))
    write(tmp_path / "7/task/9/stat", stat(9, "D"))
    write(tmp_path / "7/task/9/wchan", "rpc_wait_bit_killable")
    write(tmp_path / "7/task/9/stack", "[<0>] rpc_wait_bit_killable+0x1/0x2\n[<0>] nfs_x+0x3/0x4\n")
    write(tmp_path / "8/task/8/stat", stat(8, "D", 0x00200000))  # a kernel thread
    (only,) = blocked_tasks(tmp_path, between=0.0)
    assert (only.pid, only.tid, only.name) == (7, 9, "py (x) thon")
    assert only.wchan == "rpc_wait_bit_killable"
    assert only.stack == ("rpc_wait_bit_killable+0x1/0x2", "nfs_x+0x3/0x4")


def test_rdma_counts_in_words_and_bytes(tmp_path: Path) -> None:
    efa, mlx = (tmp_path / "class/infiniband" / name / "ports/1" for name in ("efa_0", "mlx5_0"))
    write(efa / "state", "4: ACTIVE\n")
    write(efa / "hw_counters/rx_bytes", "100\n")
    write(mlx / "state", "1: DOWN\n")
    write(mlx / "link_layer", "InfiniBand\n")
    write(mlx / "counters/port_rcv_data", "100\n")
    first, second = device_traffic(tmp_path, window=0.0)
    assert (first.device, first.kind, first.active) == ("efa_0", "efa", True)
    assert (second.device, second.kind, second.active) == ("mlx5_0", "infiniband", False)
    assert first.bytes_per_second == 0.0
    assert device_traffic(tmp_path / "nowhere") == ()


SMI = """<nvidia_smi_log><gpu><uuid>GPU-1</uuid><product_name>H100</product_name>
<utilization><gpu_util>99 %</gpu_util></utilization><processes><process_info><pid>4711</pid>
<type>C</type><process_name>python</process_name></process_info></processes></gpu></nvidia_smi_log>
"""


def test_nvidia_gpus(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = tmp_path / "nvidia-smi"
    write(program, f"#!/bin/sh\n[ \"$*\" = '-q -x' ] && echo '{SMI}'\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    gpus, processes, problem = gpus_here()
    assert problem == ""
    assert [(gpu.index, gpu.uuid, gpu.utilization_percent) for gpu in gpus] == [("0", "GPU-1", 99)]
    assert [(one.gpu, one.pid, one.name) for one in processes] == [("0", 4711, "python")]
    write(program, "#!/bin/sh\necho 'NVIDIA-SMI has failed'; exit 9\n")
    gpus, processes, problem = gpus_here()
    assert (gpus, processes) == ((), ())
    assert "NVIDIA-SMI has failed" in problem


def test_amd_gpus(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))  # no nvidia-smi here
    card = tmp_path / "sys/class/drm/card1/device"
    write(card / "vendor", "0x1002\n")
    write(card / "mem_info_vram_total", str(64 << 30))
    write(card / "mem_info_vram_used", str(32 << 30))
    write(card / "gpu_busy_percent", "99\n")
    write(tmp_path / "sys/class/kfd/kfd/proc/4711/vram_123", str(1 << 30))
    write(tmp_path / "proc/4711/comm", "python\n")
    gpus, processes, problem = gpus_here(tmp_path / "sys", tmp_path / "proc")
    assert problem == ""
    assert [(g.index, g.utilization_percent) for g in gpus] == [("0", 99.0)]
    assert [(p.pid, p.name) for p in processes] == [(4711, "python")]


def test_amd_heat_is_the_junctions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The edge is cooler: by it a GPU at its limit would be well."""
    monkeypatch.setenv("PATH", str(tmp_path))
    card = tmp_path / "sys/class/drm/card1/device"
    write(card / "vendor", "0x1002\n")
    write(card / "mem_info_vram_total", str(64 << 30))
    for number, label, value in (
        (1, "edge", "61000"),
        (2, "junction", "97000"),
        (3, "mem", "70000"),
    ):
        write(card / f"hwmon/hwmon3/temp{number}_label", f"{label}\n")
        write(card / f"hwmon/hwmon3/temp{number}_input", f"{value}\n")
    (gpu,), _, _ = gpus_here(tmp_path / "sys", tmp_path / "proc")
    assert gpu.temperature_celsius == 97.0


def test_amd_processes_are_on_the_gpus_that_9400_names(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nonexistent")
    gpus, processes, _ = gpus_here(MI300X / "sys", MI300X / "proc")
    assert [(gpu.index, gpu.uuid) for gpu in gpus] == [
        ("0", "0000:05:00.0"), ("1", "0000:c6:00.0"), ("2", "0001:0a:00.0"),
    ]  # fmt: skip
    assert [(held.gpu, held.pid, held.memory_bytes) for held in processes] == [
        ("1", 4711, 1 << 30),
        ("0", 4712, 3 << 30),  # two partitions of one GPU
        ("2", 4713, 4096),
        ("kfd-9999", 4713, 8192),  # a GPU that this container may not see
    ]


def test_amd_gpus_are_in_the_order_of_their_addresses(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    for card, place in enumerate(("0000:00:01.1/0000:23:00.0", "0000:00:03.1/0000:03:00.0")):
        device = tmp_path / "sys/devices/pci0000:00" / place
        write(device / "vendor", "0x1002\n")
        write(device / "mem_info_vram_total", str(64 << 30))
        link = tmp_path / f"sys/class/drm/card{card}/device"
        link.parent.mkdir(parents=True)
        link.symlink_to(device)
    gpus, _, _ = gpus_here(tmp_path / "sys", tmp_path / "proc")
    assert [gpu.uuid for gpu in gpus] == ["0000:03:00.0", "0000:23:00.0"]


@pytest.mark.parametrize(
    ("properties", "addresses"),
    [
        ("location_id 50688\ndomain 1", ("0001:c6:00.0", "0001:c6:00.0")),
        ("location_id 50691", ("0000:c6:00.3", "0000:c6:00.0")),
        ("location_id 2684372480\ndomain 0", ("0000:46:00.0", "0000:46:00.0")),
        ("location_id -1\nlocation_id", ()),
        ("", ()),
    ],
)
def test_where_a_topology_node_is(properties: str, addresses: tuple[str, ...]) -> None:
    assert pci_addresses(properties) == addresses


def test_versions(tmp_path: Path) -> None:
    write(tmp_path / "proc/sys/kernel/osrelease", "6.1.0\n")
    write(
        tmp_path / "proc/driver/nvidia/version",
        "NVRM version: NVIDIA UNIX x86_64 Kernel Module  550.54.15  Tue Mar  5\n",
    )
    write(tmp_path / "etc/os-release", 'PRETTY_NAME="Debian 12"\n')
    write(tmp_path / "sys/module/efa/version", "2.13.0\n")
    (tmp_path / "sys/module/mlx5_core").mkdir()
    assert versions_here(tmp_path / "proc", tmp_path) == {
        "kernel": "6.1.0",
        "os": "Debian 12",
        "nvidia": "550.54.15",
        "efa": "2.13.0",
        "mlx5_core": "loaded",
    }


def test_a_sessions_logs(tmp_path: Path) -> None:
    name = f"worker-{'ab' * 28}-01000000-77.out"
    write(
        tmp_path / name,
        "h:77:80 [0] NCCL INFO NET/OFI Selected Provider is efa (found 4 nics)\n"
        "ValueError: token=abcdefghijkl is wrong\n",
    )
    assert transport_lines(tmp_path).used == "efa"
    (error,) = last_errors(tmp_path, load_catalogue())
    assert error.file == name
    assert "abcdefghijkl" not in error.text
    assert transport_lines(tmp_path / "nowhere").used == ""
