"""A job as OpenMetrics text, and a TSDB made of it by Prometheus's own tool."""

from __future__ import annotations

import subprocess
from collections.abc import Iterable
from pathlib import Path

import numpy as np

from tests.support.tsdb_scenarios.world import Series

BLOCK_SECONDS = 7200.0


def write(path: Path, series: Iterable[Series]) -> None:
    """Write all series, grouped by family; ``promtool`` wants a closing ``# EOF``."""
    families: dict[str, list[Series]] = {}
    for one in series:
        families.setdefault(one[0], []).append(one)
    with path.open("w") as file:
        for name, members in families.items():
            kind = "counter" if name.endswith("_total") else "gauge"
            family = name.removesuffix("_total") if kind == "counter" else name
            file.write(f"# TYPE {family} {kind}\n")
            for _, labels, times, values in members:
                inner = ",".join(f'{key}="{value}"' for key, value in labels.items())
                head = f"{name}{{{inner}}}"
                file.writelines(
                    f"{head} {_number(value)} {time:.3f}\n"
                    for time, value in zip(times, values, strict=True)
                )
        file.write("# EOF\n")


def _number(value: float) -> str:
    if np.isnan(value):
        return "NaN"
    if np.isinf(value):
        return "+Inf" if value > 0 else "-Inf"
    return repr(float(value))


def make_tsdb(promtool: str, series: Iterable[Series], folder: Path) -> Path:
    """Blocks of these series in ``folder``; promtool's own two-hour blocks."""
    folder.mkdir(parents=True, exist_ok=True)
    text = folder.parent / f"{folder.name}.om"
    write(text, series)
    done = subprocess.run(
        [promtool, "tsdb", "create-blocks-from", "openmetrics", str(text), str(folder)],
        capture_output=True,
        timeout=300,
        check=False,
    )
    text.unlink()
    if done.returncode:
        raise RuntimeError(done.stderr.decode("utf-8", "replace")[-2000:])
    return folder


def make_large_tsdb(promtool: str, series: Iterable[Series], folder: Path) -> Path:
    """The same for days of many hosts: promtool reads all of its input once for each block."""
    whole = [
        (name, labels, np.asarray(times), np.asarray(values))
        for name, labels, times, values in series
        if len(times)
    ]
    first = min(float(times[0]) for _, _, times, _ in whole)
    last = max(float(times[-1]) for _, _, times, _ in whole)
    start = first // BLOCK_SECONDS * BLOCK_SECONDS
    while start <= last:
        part: list[Series] = []
        for name, labels, times, values in whole:
            left, right = np.searchsorted(times, [start, start + BLOCK_SECONDS])
            if right > left:
                part.append((name, labels, times[left:right], values[left:right]))
        make_tsdb(promtool, part, folder)
        start += BLOCK_SECONDS
    return folder
