"""NVIDIA's GPUs on a captured tree: what /proc and /sys tell without the driver."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from ray_sentinel.api import Context, Skip
from ray_sentinel_plugins.kernel_log import KernelLogCollector
from ray_sentinel_plugins.nvml import NvmlCollector

# As driver 570 prints it.
INFORMATION = """\
Model: \t\t NVIDIA H100 80GB HBM3
IRQ:   \t\t 255
GPU UUID: \t GPU-11111111-2222-3333-4444-555555555555
Video BIOS: \t 96.00.30.00.01
Bus Type: \t PCIe
Bus Location: \t 0000:3b:00.0
Device Minor: \t 1
"""

Make = Callable[[Path], Context]
Written = Callable[..., dict[str, float]]


def device(root: Path, address: str, vendor: str, kind: str, corrected: int | None = None) -> None:
    folder = root / "sys/bus/pci/devices" / address
    folder.mkdir(parents=True)
    (folder / "vendor").write_text(f"{vendor}\n")
    (folder / "class").write_text(f"{kind}\n")
    if corrected is not None:
        text = f"RxErr {corrected}\nTOTAL_ERR_COR {corrected}\n"
        (folder / "aer_dev_correctable").write_text(text)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Two GPUs, an NVSwitch, an adapter and another vendor's GPU."""
    (tmp_path / "proc").mkdir()
    device(tmp_path, "0000:86:00.0", "0x10de", "0x030200", 0)
    device(tmp_path, "0000:3b:00.0", "0x10de", "0x030200", 7)
    device(tmp_path, "0000:07:00.0", "0x10de", "0x068000", 3)
    device(tmp_path, "0000:5e:00.0", "0x15b3", "0x020700", 1)
    device(tmp_path, "0000:09:00.0", "0x1a03", "0x030000", 1)
    return tmp_path


def test_what_sysfs_tells(root: Path, context: Make, series: Written) -> None:
    found = series(NvmlCollector(context(root)).collect())
    assert found == {
        'hw_gpu_info{gpu="0",uuid="",name="",vendor="nvidia",driver="",pci="0000:3b:00.0"}': 1,
        'hw_gpu_pcie_correctable_total{gpu="0"}': 7,
        'hw_gpu_info{gpu="1",uuid="",name="",vendor="nvidia",driver="",pci="0000:86:00.0"}': 1,
        'hw_gpu_pcie_correctable_total{gpu="1"}': 0,
    }


def test_what_the_driver_left_in_proc(root: Path, context: Make, series: Written) -> None:
    folder = root / "proc/driver/nvidia/gpus/0000:3b:00.0"
    folder.mkdir(parents=True)
    (folder / "information").write_text(INFORMATION)
    (root / "proc/driver/nvidia/version").write_text(
        "NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.104.05  Sat Aug 19 2023\nGCC:\n"
    )
    found = series(NvmlCollector(context(root)).collect())
    assert list(found) == [
        'hw_gpu_info{gpu="0",uuid="GPU-11111111-2222-3333-4444-555555555555",'
        'name="NVIDIA H100 80GB HBM3",vendor="nvidia",driver="535.104.05",pci="0000:3b:00.0"}',
        'hw_gpu_pcie_correctable_total{gpu="0"}',
    ]


def test_an_xid_of_the_tree_gets_the_gpus_number(
    root: Path, context: Make, series: Written
) -> None:
    (root / "dev").mkdir()
    (root / "dev/dmesg").write_text(
        "[   40.000000] NVRM: Xid (PCI:0000:86:00): 48, pid=1, name=a\n"
    )
    found = series(KernelLogCollector(context(root)).collect())
    assert found['hw_gpu_xid_errors_total{gpu="1",xid="48"}'] == 1


def test_a_tree_without_such_a_gpu(tmp_path: Path, context: Make) -> None:
    with pytest.raises(Skip, match="no NVIDIA GPU"):
        NvmlCollector(context(tmp_path))
