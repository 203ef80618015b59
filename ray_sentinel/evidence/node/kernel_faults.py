"""Merges the many kernel log lines of one fault: each OOM kill and each lost GPU is reported once.

A kill is "NAME invoked oom-killer" (the process that asked for memory, not the one that dies), the
"oom-kill:constraint=" summary, "Killed process PID", and "oom_reaper: reaped process PID"
(``mm/oom_kill.c``). A GPU that falls off the bus is an Xid 79 and the same in words.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from ray_sentinel import regex as re
from ray_sentinel.model.health import KernelLine

SAME_SECONDS = 600.0
"""Most seconds between two lines of one fault. A process number is not used again so soon, and the
driver repeats itself at each attempt to reach a lost GPU."""

_KILL = re.compile(
    r"(?P<killed>Kill(?:ed)? process (?P<pid>\d+))"
    r"|(?P<constraint>oom-kill:constraint=.*\bpid=(?P<constraint_pid>\d+))"
    r"|(?P<reaped>oom_reaper: reaped process (?P<reaped_pid>\d+))"
    r"|(?P<invoked>invoked oom-killer)"
)
_LIMITED = re.compile(r"constraint=CONSTRAINT_MEMCG,.*\boom_memcg=(?P<cgroup>[^,]+)")
_PCI = re.compile(r"\b(?P<pci>[\da-f]{4,8}:[\da-f]{2}:[\da-f]{2})(?:\.\d)?\b", re.IGNORECASE)
_FALLEN = re.compile(r"Xid \(PCI:[^)]*\): 79\b|fallen off the bus|GPU is lost")
_WORTH = ("killed", "constraint", "reaped", "invoked")
"""The kinds of lines about a kill, the one that says most first."""


class _Fault(msgspec.Struct):
    key: str
    """The process number or the PCI address; empty where no line has named it yet."""
    lines: list[tuple[int, KernelLine]]
    """The fault's lines, each with its place in the order of how much it says: 0 says most."""

    def accepts(self, key: str, line: KernelLine) -> bool:
        kind, last = self.lines[-1][1].kind, self.lines[-1][1].time
        apart = abs(line.time - last) if line.time is not None and last is not None else 0.0
        return kind == line.kind and self.key in (key, "") and apart <= SAME_SECONDS

    def best_line(self) -> KernelLine:
        """The line that says most, with the limit that was reached."""
        best = min(self.lines, key=lambda item: item[0])[1]
        for _, line in self.lines:
            limited = _LIMITED.search(line.text)
            if limited and limited["cgroup"] not in best.text:
                text = f"{best.text} [the limit of cgroup {limited['cgroup']}]"
                return msgspec.structs.replace(best, text=text)
        return best


def each_once(lines: Iterable[KernelLine]) -> list[KernelLine]:
    """One line for each fault, in the order in which they began; a line that belongs to none
    stays."""
    faults: list[_Fault] = []
    for line in lines:
        worth, key = _place(line)
        fault = None
        if worth is not None and (key or line.kind != "oom-host"):
            fault = next((fault for fault in reversed(faults) if fault.accepts(key, line)), None)
        if fault is None:
            faults.append(_Fault(key if worth is not None else "-", []))
            fault = faults[-1]
        fault.key = fault.key or key
        fault.lines.append((worth or 0, line))
    return [fault.best_line() for fault in faults]


def _place(line: KernelLine) -> tuple[int | None, str]:
    """(how little the line says about its fault, whom the fault hit); None for a line about no such
    fault."""
    if line.kind == "gpu-lost":
        found = _PCI.search(line.text) if _FALLEN.search(line.text) else None
        return (None, "") if found is None else (int("Xid" not in line.text), _pci(found["pci"]))
    found = _KILL.search(line.text) if line.kind == "oom-host" else None
    if found is None:
        return None, ""
    pid = found["pid"] or found["constraint_pid"] or found["reaped_pid"] or ""
    return _WORTH.index(next(name for name in _WORTH if found[name])), pid


def _pci(address: str) -> str:
    """The driver writes the domain with four digits or with eight."""
    domain, _, rest = address.lower().partition(":")
    return f"{int(domain, 16):04x}:{rest}"
