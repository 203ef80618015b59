"""Finds and reads a job's own logs beside its series. Large files are read at both ends only."""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterator
from datetime import datetime, timezone
from pathlib import Path

import msgspec

from ray_sentinel.diagnose.logs import LogFacts, Total
from ray_sentinel.diagnose.logtext import (
    MainLog,
    count_lines,
    exporter_facts,
    init_waves,
    prometheus_facts,
    worker_facts,
)
from ray_sentinel.model.diagnosis import Figure
from ray_sentinel.regular_file import open_regular, read_regular

# Transformers' ``trainer_state.json``, which its trainer saves with every checkpoint.
#
# Its ``max_steps`` is the whole training's number of steps, worked out from the epochs where those
# were what was asked for; ``global_step`` is where the checkpoint was taken.

NAME = "trainer_state.json"
MOST_FILES = 32
"""Most saved states that are read, the newest: every checkpoint has one."""
MOST_BYTES = 64 << 20
"""Most bytes of such a file, which holds every line that was logged; a larger one is not read."""


class _State(msgspec.Struct):
    max_steps: float
    global_step: float


def saved_totals(folder: Path) -> tuple[Total, ...]:
    """The step totals in the trainer states in a job's folder, up to two levels deep; damaged ones
    are ignored.

    Of many, those of the checkpoints with the highest numbers are read.
    """
    found = itertools.chain.from_iterable(
        folder.glob(f"{depth}{NAME}") for depth in ("", "*/", "*/*/")
    )
    newest = sorted(found, key=_number, reverse=True)[:MOST_FILES]
    return tuple(dict.fromkeys(total for file in newest if (total := _total(file)) is not None))


def _number(file: Path) -> float:
    """The step of ``checkpoint-1500``; what lies in no checkpoint's folder was saved at the end."""
    name = file.parent.name.rpartition("-")[2]
    return float(name) if name.isascii() and name.isdigit() and len(name) < 16 else float("inf")


def _total(file: Path) -> Total | None:
    try:
        state = msgspec.json.decode(read_regular(file, MOST_BYTES), type=_State)
    except (OSError, ValueError, RecursionError):
        # A state that was being saved when the job ended; an earlier checkpoint has one, too.
        return None
    if not 1 < state.max_steps < 1e15 or not 0 <= state.global_step <= state.max_steps:
        return None
    return Total(state.max_steps, state.global_step, saved=True)


HEAD, TAIL = 4 << 20, 12 << 20
"""Bytes that are read from the front and from the end of a large log."""
WORKER_BYTES = 8 << 20
"""Bytes that are read at the start of a worker's log, where its communicators are logged."""
MAX_WORKERS = 512
"""Most workers whose logs are read."""
_MAIN = ("rank-0.log", "rank_0.log", "job.log", "train.log", "main.log", "output.log")


def read_logs(folder: Path | None) -> LogFacts:
    """The facts in the logs of a job's folder; empty if there are none."""
    if folder is None or not folder.is_dir():
        return LogFacts()
    main = main_log(folder)
    facts = LogFacts()
    if main is not None:
        gathered = MainLog(main.name, _year(main))
        gathered.feed(read_ends(main))
        facts = gathered.as_facts()
    waves, counted, more = _workers(folder)
    for file in sorted((folder / "metrics_exporter").glob("*.log")):
        more += exporter_facts(file.name, file.stem, read_ends(file))
    for file in (folder / "prometheus" / "prometheus.log", folder / "prometheus.log"):
        if file.is_file():
            more += prometheus_facts(file.name, read_ends(file))
    return msgspec.structs.replace(
        facts,
        init_waves=waves,
        worker_lines=counted,
        facts=(*facts.facts, *more),
        modules=_modules(folder),
        totals=(*facts.totals, *saved_totals(folder)),
    )


def main_log(folder: Path) -> Path | None:
    """The job's main log: ``<folder>.log`` beside it, rank 0's, or the largest ``*.log`` in it."""
    beside = folder.parent / f"{folder.name}.log"
    if beside.is_file():
        return beside
    for name in _MAIN:
        if (folder / name).is_file():
            return folder / name
    files = [file for file in folder.glob("*.log") if file.is_file()]
    files += [file for file in folder.glob("*.out") if file.is_file()]
    files = [file for file in files if file.name != "prometheus.log"]
    return max(files, key=lambda file: file.stat().st_size, default=None)


def read_ends(file: Path, head: int = HEAD, tail: int = TAIL) -> Iterator[str]:
    """Lines of a file; of a large one only those at its beginning and end."""
    try:
        size = file.stat().st_size
        with open_regular(file) as stream:
            if size <= head + tail:
                yield from _lines(stream.read(size))
                return
            yield from _lines(stream.read(head))
            stream.seek(size - tail, os.SEEK_SET)
            yield from _lines(stream.read(tail).partition(b"\n")[2])
    except OSError:
        # A log that cannot be read counts as missing; the series are still diagnosed.
        return


def _lines(data: bytes) -> Iterator[str]:
    # Progress bars rewrite their line with carriage returns.
    for line in data.replace(b"\r", b"\n").split(b"\n"):
        if line:
            yield line.decode("utf-8", "replace")


def _workers(folder: Path) -> tuple[dict[str, int], dict[str, int], list[Figure]]:
    waves: dict[str, int] = {}
    counted: dict[str, int] = {}
    facts: list[Figure] = []
    files = sorted((folder / "ray_logs").glob("*/worker-*.out"))[:MAX_WORKERS]
    for file in files:
        host = file.parent.name
        lines = list(read_ends(file, WORKER_BYTES, 0))
        waves[host] = max(waves.get(host, 0), init_waves(lines, _year(file)))
        if len(facts) < 20:
            facts += worker_facts(f"{host}/{file.name}", lines)
        for what, count in count_lines([*lines, *_errors(file)]).items():
            counted[what] = counted.get(what, 0) + count
    return {host: count for host, count in waves.items() if count}, counted, facts


def _errors(file: Path) -> Iterator[str]:
    """What the same worker wrote to its standard error."""
    return read_ends(file.with_suffix(".err"), WORKER_BYTES, 0)


def _modules(folder: Path) -> int | None:
    """Modules that XLA dumped; None if it dumped none."""
    dump = folder / "xla_dump"
    if not dump.is_dir():
        return None
    names = {file.name.split(".")[0] for file in dump.iterdir() if file.name.startswith("module_")}
    return len(names) or None


def _year(file: Path) -> int:
    return datetime.fromtimestamp(file.stat().st_mtime, tz=timezone.utc).year
