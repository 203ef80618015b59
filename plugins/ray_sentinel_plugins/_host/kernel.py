"""CPU, scheduling and memory, from single files of ``/proc`` (``man 5 proc``)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from ray_sentinel.api import Metric, Sample
from ray_sentinel_plugins._files import Files, counter, decimal, pairs

CPU_MODES = ("user", "nice", "system", "idle", "iowait", "irq", "softirq", "steal")
"""The columns of the ``cpu`` line; ``guest`` follows but is contained in ``user``."""
USER_HZ = 100
"""Ticks per second in what the kernel shows to programs, on every architecture but Alpha."""

CPU = Metric("hw_cpu_seconds_total", "counter", "CPU time of all CPUs together.", ("mode",))
STAT = {
    "procs_running": Metric("hw_procs_running", "gauge", "Runnable tasks."),
    "procs_blocked": Metric("hw_procs_blocked", "gauge", "Tasks that wait for I/O."),
    "ctxt": Metric("hw_context_switches_total", "counter", "Context switches."),
}
LOAD1 = Metric("hw_load1", "gauge", "Load average over one minute.")
OOM_KILLS = Metric("hw_oom_kills_total", "counter", "Processes killed by the OOM killer.")
MEMORY = {
    "MemTotal": Metric("hw_mem_total_bytes", "gauge", "Memory in all."),
    "MemAvailable": Metric("hw_mem_available_bytes", "gauge", "Memory that can still be had."),
    "Dirty": Metric("hw_mem_dirty_bytes", "gauge", "Pages that wait to be written."),
    "Writeback": Metric("hw_mem_writeback_bytes", "gauge", "Pages that are being written."),
}
METRICS = (CPU, *STAT.values(), LOAD1, OOM_KILLS, *MEMORY.values())


def read(files: Files, proc: Path) -> Iterator[Sample]:
    """All samples of this subject."""
    if text := files.text(path := proc / "stat"):
        for mode, ticks in files.sound(path, parse_cpu(text)).items():
            yield CPU(ticks / USER_HZ, mode)
        values = files.sound(path, parse_values(text), STAT)
        yield from (metric(values[key]) for key, metric in STAT.items() if key in values)
    if line := files.line(path := proc / "loadavg"):
        load = parse_load(line)
        if load is None:
            files.complain(path, "does not begin with a load average")
        else:
            yield LOAD1(load)
    yield from files.samples(proc / "vmstat", parse_values, {"oom_kill": OOM_KILLS})
    yield from files.samples(proc / "meminfo", parse_meminfo, MEMORY)


def parse_cpu(text: str) -> dict[str, int]:
    """``/proc/stat``: the clock ticks of all CPUs by mode; old kernels have fewer modes."""
    for key, words in pairs(text):
        if key == "cpu":
            ticks = zip(CPU_MODES, map(counter, words), strict=False)
            return {mode: number for mode, number in ticks if number is not None}
    return {}


def parse_load(line: str) -> float | None:
    """The first of the three averages, which carry two decimals each."""
    words = line.split()
    return decimal(words[0]) if len(words) >= 3 and "." in words[0] else None


def parse_values(text: str) -> dict[str, int]:
    """Lines of a name and a whole number, as in ``/proc/vmstat``; other lines are passed over."""
    values = {}
    for key, words in pairs(text):
        if words and (number := counter(words[0])) is not None:
            values[key] = number
    return values


def parse_meminfo(text: str) -> dict[str, int]:
    """``/proc/meminfo`` in bytes. Every size carries its unit, kB (of 1024 bytes).

    >>> parse_meminfo("Dirty:   12 kB\\nHugePages_Total:  3\\n")
    {'Dirty': 12288}
    """
    sizes = {}
    for key, words in pairs(text):
        if len(words) == 2 and words[1] == "kB" and (number := counter(words[0])) is not None:
            sizes[key] = number * 1024
    return sizes
