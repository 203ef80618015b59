"""How processes ended, as launchers report it: torchrun's failure table, srun, mpirun, DeepSpeed.

torchrun prints a table (``torch/distributed/elastic/multiprocessing/errors``): one paragraph for
each failed rank, the first observed one under "Root Cause". A rank that died by SIGTERM was ended
by the launcher; one that died by SIGABRT usually ended itself after a watchdog's timeout.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from ray_sentinel import regex as re
from ray_sentinel.evidence.logs.lines.lines import ScannedLine
from ray_sentinel.evidence.logs.lines.times import parse_time

SIGNALS = {
    1: "SIGHUP",
    2: "SIGINT",
    3: "SIGQUIT",
    4: "SIGILL",
    6: "SIGABRT",
    7: "SIGBUS",
    8: "SIGFPE",
    9: "SIGKILL",
    11: "SIGSEGV",
    13: "SIGPIPE",
    15: "SIGTERM",
    24: "SIGXCPU",
}
_ROW = re.compile(
    r"^\s+(?P<key>time|host|rank|exitcode|error_file|traceback|msg)\s*: ?(?P<value>.*)$"
)
_RANK = re.compile(r"(?P<rank>\d+)(?: \(local_rank: (?P<local>\d+)\))?")
_EXIT = re.compile(r"(?P<code>-?\d+)(?: \(pid: (?P<pid>\d+)\))?")
_FOLDED = re.compile(
    r"\btime\s*: (?P<time>\S{1,40})\s+host\s*: (?P<host>\S{1,255})"
    r"\s+rank\s*: (?P<rank>\d{1,9}) \(local_rank: (?P<local>\d{1,9})\)"
    r"\s+exitcode\s*: (?P<code>-?\d{1,9}) \(pid: (?P<pid>\d{1,9})\)"
    r"(?:\s+error_file\s*: \S+)?(?:\s+traceback\s*: (?P<said>.{0,200}))?"
)
_GRACE = 20.0
"""Seconds after the first failure from which a SIGKILL counts as torchrun's own: it ends the others
by SIGTERM, and 30 s later those that are still there by SIGKILL."""
TABLE_MARKS = ("Root Cause (first observed failure)", "Failures:")


class ProcessExit(msgspec.Struct, frozen=True, kw_only=True):
    """One process's end. A negative ``code`` is the negated number of a signal."""

    code: int | None = None
    rank: int | None = None
    local_rank: int | None = None
    pid: int | None = None
    host: str = ""
    time: float | None = None
    message: str = ""
    root: bool = False
    """This is the exit that the launcher saw first."""
    index: int = 0
    """The place, among the lines handed in, of the one that names the exit."""


def signal_name(code: int | None) -> str:
    """``SIGKILL`` for -9 or 137; empty if it is not a signal."""
    if code is None:
        return ""
    number = -code if code < 0 else code - 128 if code > 128 else 0
    return SIGNALS.get(number, f"signal {number}" if number else "")


def exit_signature(code: int | None) -> str:
    """The catalogue entry for a process that ended with ``code``."""
    name = signal_name(code)
    if name in ("SIGTERM", "SIGINT", "SIGHUP"):
        return "exit-by-launcher"
    if name == "SIGABRT":
        return "exit-abort"
    if name:
        return "exit-by-signal"
    return "exit-code"


def killed_by_launcher(row: ProcessExit, rows: Sequence[ProcessExit]) -> bool:
    """Whether torchrun itself ended the rank by SIGKILL, long after the first one had failed."""
    root = next((other for other in rows if other.root), None)
    if row.root or root is None or row.time is None or root.time is None:
        return False
    return signal_name(row.code) == "SIGKILL" and row.time - root.time >= _GRACE


def read_table(lines: Sequence[ScannedLine], year: int) -> tuple[ProcessExit, ...]:
    """The rows of torchrun's failure table that ``lines`` begin with."""
    rows: list[ProcessExit] = []
    current: dict[str, str] = {}
    root = False
    where = 0
    for index, line in enumerate(lines[:400]):
        text = line.text
        if TABLE_MARKS[0] in text:
            _close(rows, current, root, where, year)
            root, current = True, {}
        elif match := _ROW.match(text):
            if match["key"] in current:
                _close(rows, current, root, where, year)
                current = {}
            current[match["key"]] = match["value"].strip()
            if match["key"] in ("rank", "exitcode"):
                where = index
        elif text.lstrip().startswith("====") and index > 3:
            break
    _close(rows, current, root, where, year)
    return tuple(rows)


def read_row(text: str, year: int, *, root: bool) -> ProcessExit | None:
    """A row of torchrun's table that is on one line, because a log service joined the paragraph.

    ``root``: the line before it announces the root cause.
    """
    match = _FOLDED.search(text)
    if match is None:
        return None
    return ProcessExit(
        code=int(match["code"]),
        pid=int(match["pid"]),
        rank=int(match["rank"]),
        local_rank=int(match["local"]),
        host=match["host"],
        time=parse_time(match["time"], year),
        message=(match["said"] or "").strip(),
        root=root,
    )


def table_end(lines: Sequence[ScannedLine], index: int) -> int:
    """The last line of the paragraph that ``lines[index]`` belongs to."""
    end = index
    while end + 1 < len(lines) and _ROW.match(lines[end + 1].text):
        end += 1
    return end


def _close(
    rows: list[ProcessExit], found: dict[str, str], root: bool, index: int, year: int
) -> None:
    if "exitcode" not in found and "rank" not in found:
        return
    rank = _RANK.match(found.get("rank", ""))
    code = _EXIT.match(found.get("exitcode", ""))
    rows.append(
        ProcessExit(
            code=int(code["code"]) if code else None,
            pid=int(code["pid"]) if code and code["pid"] else None,
            rank=int(rank["rank"]) if rank else None,
            local_rank=int(rank["local"]) if rank and rank["local"] else None,
            host=found.get("host", ""),
            time=parse_time(found.get("time", ""), year),
            message=found.get("traceback", ""),
            root=root,
            index=index,
        )
    )
