"""Pressure stall information (kernel: Documentation/accounting/psi.rst)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from ray_sentinel.api import Metric, Sample
from ray_sentinel_plugins._files import Files, counter, decimal, pairs


def _share(name: str, text: str) -> Metric:
    return Metric(name, "gauge", text + ", in percent of the time.")


# (resource, who, field): "some" means that one task or more waited, "full" that all of them did.
PRESSURE = {
    ("cpu", "some", "avg10"): _share("hw_cpu_pressure_some_pct", "Tasks waited for a CPU, 10 s"),
    ("memory", "some", "avg10"): _share(
        "hw_mem_pressure_some_pct", "Tasks waited for memory, 10 s"
    ),
    ("memory", "full", "avg10"): _share(
        "hw_mem_pressure_full_pct", "All tasks waited for memory, 10 s"
    ),
    ("io", "some", "avg10"): _share("hw_io_pressure_some_pct", "Tasks waited for I/O, 10 s"),
    ("io", "full", "avg10"): _share("hw_io_pressure_full_pct", "All tasks waited for I/O, 10 s"),
    ("io", "some", "avg300"): _share(
        "hw_io_pressure_some_avg300_pct", "Tasks waited for I/O, 300 s"
    ),
    ("io", "full", "avg300"): _share(
        "hw_io_pressure_full_avg300_pct", "All tasks waited for I/O, 300 s"
    ),
    ("io", "full", "total"): Metric(
        "hw_io_pressure_full_total_us", "counter", "Microseconds in which all tasks waited for I/O."
    ),
}
METRICS = tuple(PRESSURE.values())


def read(files: Files, proc: Path) -> Iterator[Sample]:
    """All samples of this subject; none if the kernel was started with ``psi=0``."""
    for resource in ("cpu", "memory", "io"):
        wanted = {key[1:]: metric for key, metric in PRESSURE.items() if key[0] == resource}
        yield from files.samples(proc / "pressure" / resource, parse_pressure, wanted)


def parse_pressure(text: str) -> dict[tuple[str, str], float]:
    """(some or full, field) → percent, or microseconds for ``total``.

    >>> parse_pressure("some avg10=0.10 avg60=2.00 avg300=3.85 total=15\\n")["some", "total"]
    15
    """
    values: dict[tuple[str, str], float] = {}
    for who, words in pairs(text):
        for word in words:
            field, _, number = word.partition("=")
            value = counter(number) if field == "total" else decimal(number)
            if value is not None and (field == "total" or 0 <= value <= 100):
                values[who, field] = value
    return values
