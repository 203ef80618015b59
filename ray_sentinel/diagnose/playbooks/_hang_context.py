"""The facts about a job while it stands still, and just before."""

from __future__ import annotations

import msgspec

from ray_sentinel.diagnose import stats
from ray_sentinel.diagnose.anomaly import Anomaly
from ray_sentinel.diagnose.case import JobCase
from ray_sentinel.diagnose.detect import blocked, faults, levels, rdma, series_end, sockets
from ray_sentinel.diagnose.detect.levels import StalledGpu
from ray_sentinel.diagnose.stop import ProgressStop

TRIGGER_SECONDS = 600.0
"""Most seconds between a trigger and the stop that follows it."""
SETTLE_SECONDS = 30.0
"""Seconds that GPUs need to come down after the stop."""


class HangContext(msgspec.Struct, frozen=True, kw_only=True):
    """What is visible during the stop."""

    stop: ProgressStop
    states: tuple[StalledGpu, ...]
    dead: tuple[Anomaly, ...]
    ports: tuple[rdma.PortTrouble, ...]
    tcp: tuple[sockets.TcpTrouble, ...]
    """The trouble of hosts and cards with TCP, where the collectives run over it."""
    errors: tuple[faults.DeviceErrors, ...]
    off_bus: tuple[Anomaly, ...]
    held: tuple[blocked.BlockedProcesses, ...]
    """Processes that wait in the kernel since about the stop."""

    def share(self, state: str) -> float:
        """The share of the remaining GPUs that are in this state."""
        there = [one for one in self.states if one.state != "gone"]
        return sum(one.state == state for one in there) / len(there) if there else 0.0

    def of(self, state: str) -> list[StalledGpu]:
        """The GPUs in this state."""
        return [one for one in self.states if one.state == state]

    def silent_hosts(self) -> set[str]:
        """The hosts of which no GPU is left."""
        return {one.host for one in self.states} - {
            one.host for one in self.states if one.state != "gone"
        }


def hang_context(case: JobCase, stop: ProgressStop) -> HangContext:
    """GPU states during the stop, and what went wrong just before it."""
    settled = min(stop.at + SETTLE_SECONDS + 2 * case.cell, (stop.at + stop.end) / 2)
    late = stop.latest + 3 * case.cell
    early = stop.at - TRIGGER_SECONDS - stop.uncertainty
    return HangContext(
        stop=stop,
        states=levels.states(case, settled, stop.end),
        # A host that leaves later, while the others go on or after the end, did not stop the job.
        dead=tuple(one for one in case.once(series_end.hosts) if early <= one.at <= late),
        ports=tuple(
            port
            for port in case.once(rdma.find)
            if port.at <= late and port.cells[(case.times >= early) & (case.times <= late)].any()
        ),
        tcp=tuple(
            one
            for one in case.once(sockets.find)
            if any(
                early <= case.times[left] <= late
                for left, right in stats.runs(one.cells)
                if case.times[right - 1] >= stop.at - 2 * case.cell
            )
        ),
        errors=tuple(
            fault
            for fault in case.once(faults.find)
            if fault.severity == "fatal" and early - TRIGGER_SECONDS <= fault.at <= late
        ),
        off_bus=tuple(one for one in case.once(series_end.gpus) if early <= one.at <= late),
        held=tuple(
            one for one in blocked.during(case, settled, stop.end) if early <= one.at <= late
        ),
    )
