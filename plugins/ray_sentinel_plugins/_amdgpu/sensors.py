"""Temperature, power, clocks, load and memory of one GPU.

Source: the kernel's Documentation/gpu/amdgpu/thermal.rst and driver-misc.rst.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from ray_sentinel import regex as re
from ray_sentinel.api import Sample
from ray_sentinel_plugins import _gpu_metrics as gpu_metrics
from ray_sentinel_plugins._files import Files

PERCENT = (
    ("gpu_busy_percent", gpu_metrics.UTILIZATION),
    ("mem_busy_percent", gpu_metrics.MEMORY_UTILIZATION),
)
MEMORY = (
    ("mem_info_vram_used", gpu_metrics.VRAM_USED),
    ("mem_info_vram_total", gpu_metrics.VRAM_TOTAL),
)
CLOCKS = ("sclk", "mclk")
LABELS = {"temp": "edge|junction|mem", "freq": "sclk|mclk"}
"""Patterns of the labels that the driver gives to its sensors."""
MICRO = 1_000_000


def read(files: Files, device: Path, gpu: str) -> Iterator[Sample]:
    """All samples of this subject that the card provides."""
    for name, metric in PERCENT:
        percent = files.count(device / name)
        if percent is not None and percent > 100:
            files.complain(device / name, f"is no percentage: {percent}")
        elif percent is not None:
            yield metric(percent / 100, gpu)
    for name, metric in MEMORY:
        yield from files.counted(device / name, metric, gpu)
    monitors = [name for name in files.names(device / "hwmon") if name.startswith("hwmon")]
    monitor = device / "hwmon" / monitors[0] if monitors else None
    if monitor is not None:
        yield from _monitor(files, monitor, gpu)
    yield from _clocks(files, device, monitor, gpu)


def _monitor(files: Files, monitor: Path, gpu: str) -> Iterator[Sample]:
    names = files.names(monitor)
    temperatures = _labelled(files, monitor, names, "temp")
    # Cards without a junction sensor (APUs, before Vega 20) have one at the edge.
    hottest = "edge" if temperatures.keys() == {"edge"} else "junction"
    for metric, label in (
        (gpu_metrics.TEMPERATURE, hottest),
        (gpu_metrics.MEMORY_TEMPERATURE, "mem"),
    ):
        if label in temperatures:
            # Drivers write a negative number where a sensor fails, not where it freezes.
            path = monitor / f"{temperatures[label]}_input"
            yield from files.counted(path, metric, gpu, unit=1000)
    # Newer cards show only the power of the moment, older ones only its average.
    for name in ("power1_average", "power1_input"):
        if name in names:
            yield from files.counted(monitor / name, gpu_metrics.POWER, gpu, unit=MICRO)
            break
    yield from files.counted(monitor / "power1_cap", gpu_metrics.POWER_LIMIT, gpu, unit=MICRO)


def _clocks(files: Files, device: Path, monitor: Path | None, gpu: str) -> Iterator[Sample]:
    names = files.names(monitor) if monitor is not None else []
    labelled = _labelled(files, monitor, names, "freq") if monitor is not None else {}
    for clock in CLOCKS:
        megahertz: float | None = None
        if monitor is not None and clock in labelled:
            hertz = files.count(monitor / f"{labelled[clock]}_input")
            megahertz = hertz / MICRO if hertz is not None else None
        elif None not in labelled and (text := files.text(path := device / f"pp_dpm_{clock}")):
            megahertz = files.sound(path, parse_dpm(text))
        if megahertz is not None:
            yield gpu_metrics.CLOCK(megahertz, gpu, clock)


def _labelled(files: Files, monitor: Path, names: list[str], kind: str) -> dict[str | None, str]:
    """Sensors of a kind by their labels: ``{"junction": "temp2"}``; None stands for labels that
    cannot be read: what is not found might be one of them."""
    found: dict[str | None, str] = {}
    for name in names:
        if re.fullmatch(rf"{kind}\d+_label", name):
            label = files.word(monitor / name, LABELS[kind])
            found.setdefault(label, name.removesuffix("_label"))
    return found


def parse_dpm(text: str) -> float | None:
    """The level in force of ``pp_dpm_sclk``, in MHz.

    >>> parse_dpm("0: 132Mhz\\n1: 2100Mhz *\\n")
    2100.0
    """
    found = re.search(r"^\S+: *(\d{1,6})M[hH]z +\*", text, re.MULTILINE)
    return float(found.group(1)) if found else None
