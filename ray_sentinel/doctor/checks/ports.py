"""The ports that the run will listen on are free; whoever holds one is named."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec
import psutil

from ray_sentinel.doctor.check import Check, CheckInput, CheckResult, Here, failure, ok, skipped
from ray_sentinel.doctor.plan import RunPlan
from ray_sentinel.progress.proc.process_memory import memory_file
from ray_sentinel.text import one_line, port_number


class Holder(msgspec.Struct, frozen=True):
    """Who listens on a port. ``pid`` is None if it belongs to another user or container."""

    port: int
    address: str
    pid: int | None = None
    command: str = ""


class PortsFacts(msgspec.Struct, frozen=True):
    """The ports that were asked for, and those of them that are held."""

    wanted: tuple[int, ...]
    held: tuple[Holder, ...] = ()


class PortsCheck(Check[PortsFacts]):
    """Reads the kernel's table of listening sockets."""

    name = "ports"
    about = "ports are free"
    facts = PortsFacts

    def look(self, plan: RunPlan, here: Here) -> PortsFacts | None:
        """MASTER_PORT beside those of the plan."""
        wanted = set(plan.ports)
        if master := port_number(here.environ.get("MASTER_PORT", "")):
            wanted.add(master)  # what is not a port, rank-environment reports
        if not wanted:
            return None
        held = {}
        for entry in psutil.net_connections("tcp"):
            # An address that is not set has no port; one that listens has.
            if entry.status != psutil.CONN_LISTEN or not entry.laddr:
                continue
            address, port = entry.laddr
            if port in wanted:
                held[port, address] = Holder(port, address, entry.pid, _command(entry.pid))
        return PortsFacts(tuple(sorted(wanted)), tuple(held.values()))

    def judge(self, case: CheckInput[PortsFacts]) -> Iterable[CheckResult]:
        """Each held port is a failure."""
        if not case.seen:
            yield skipped("no ports are given (--port, MASTER_PORT)")
            return
        found = [
            failure(
                f"port {holder.port} ({holder.address}) is held by {_who(holder)}",
                f"end pid {holder.pid} if it is an old run's, or take another port"
                if holder.pid
                else f"`ss -ltnp sport = :{holder.port}` as root shows who; or take another port",
                host,
            )
            for host, facts in case.seen.items()
            for holder in facts.held
        ]
        ports = sorted({port for facts in case.seen.values() for port in facts.wanted})
        yield from found or [ok(f"free: {', '.join(map(str, ports))}")]


def _who(holder: Holder) -> str:
    return f"pid {holder.pid} ({holder.command})" if holder.pid else "a process not visible here"


def _command(pid: int | None) -> str:
    if pid is None:
        return ""
    # Whoever holds the port may hang with its memory locked: it is not waited for.
    line = memory_file(pid, "cmdline") or b""
    return one_line(line.replace(b"\0", b" ").decode("utf-8", "replace").strip(), 120)
