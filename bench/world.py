"""A node of 8 GPUs and 8 RDMA ports on this machine, with a training that writes: for measuring.

The GPUs are the tests' driver library, whose calls cost what NVML's cost; the ports are copies of a
ConnectX-5's; the training is a thread.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import threading
import time
from pathlib import Path

GPUS = PORTS = 8
TAGS = 30
ROOT = Path(__file__).resolve().parents[1]
STAND_IN = ROOT / "tests/support/nvml_stand_in"
COSTS = {
    "nvmlDeviceGetUtilizationRates": 3,
    "nvmlDeviceGetMemoryInfo": 12,
    "nvmlDeviceGetComputeRunningProcesses": 2250,
    "nvmlDeviceGetPcieThroughput": 20000,
}
"""Microseconds a call; the list of processes takes two calls."""


def make_world(folder: Path) -> dict[str, str]:
    """The library, its script and a /sys with ports and PCI devices; gives the environment."""
    library = folder / "libnvidia-ml.so.1"
    compile_it = ["cc", "-shared", "-fPIC", "-O2", "-Wl,-soname,libnvidia-ml.so.1"]
    subprocess.run([*compile_it, "-o", str(library), str(STAND_IN / "nvml.c")], check=True)
    one = [line for line in (STAND_IN / "h100.txt").read_text().splitlines() if line[0] == "0"]
    lines = [f"gpus {GPUS}", "driver 570.158.01"]
    lines += [f"cost {function} {micros}" for function, micros in COSTS.items()]
    for gpu in range(GPUS):
        lines += [f"{gpu} nvmlDeviceGetPciInfo 00000000:{gpu + 16:02X}:00.0"]
        lines += [f"{gpu} nvmlDeviceGetNvLinkState.{link} 1" for link in range(18)]
        lines += [f"{gpu}{line[1:]}" for line in one]
    (folder / "script").write_text("\n".join(lines) + "\n")
    card = ROOT / "tests/fixtures/trees/mi250x/sys/devices/pci0000:00/0000:c1:00.0"
    for gpu in range(GPUS):
        device = folder / f"sys/bus/pci/devices/0000:{gpu + 16:02x}:00.0"
        device.mkdir(parents=True)
        for file in card.glob("aer_dev_*"):
            shutil.copy(file, device)
    port = ROOT / "tests/fixtures/trees/mlx5-roce/sys/class/infiniband/mlx5_0"
    for number in range(PORTS):
        shutil.copytree(port, folder / f"sys/class/infiniband/mlx5_{number}")
    return {**os.environ, "LD_LIBRARY_PATH": str(folder), "NVML_STAND_IN": str(folder / "script")}


class BenchTraining:
    """Writes a step a second: event files in ``folder/tb``, a log in ``folder/train.log``."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        (folder / "tb").mkdir()
        self._thread.start()

    def _run(self) -> None:
        from tensorboard.compat.proto.event_pb2 import Event
        from tensorboard.compat.proto.summary_pb2 import Summary
        from tensorboard.summary.writer.event_file_writer import EventFileWriter

        writer = EventFileWriter(str(self._folder / "tb"), flush_secs=1)
        with (self._folder / "train.log").open("a") as log:
            for step in range(1_000_000):
                values = [Summary.Value(tag=f"t/{i}", simple_value=step + i) for i in range(TAGS)]
                summary = Summary(value=values)
                writer.add_event(Event(wall_time=time.time(), step=step, summary=summary))
                writer.flush()
                log.write(f"completed step: {step}, seconds: 1.0, loss: 2.5\n")
                log.flush()
                if self._stop.wait(1.0):
                    writer.close()
                    return

    def stop(self) -> None:
        """Stop writing."""
        self._stop.set()
        self._thread.join(10.0)
