"""RDMA ports: traffic, retransmissions, congestion, errors and state, from /sys/class/infiniband.

Reading a counter may ask the adapter's firmware (60 ms on ionic), and a wedged adapter may never
answer: each device is read in a thread of its own, so that eight of them take as long as one, and
a dead one takes none of the others with it.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path

from ray_sentinel import regex as re
from ray_sentinel.api import Absent, Collector, Context, Metric, Options, Sample, Seconds, Skip
from ray_sentinel.bounded import Bounded
from ray_sentinel_plugins._files import Files, clean, counter, files_of
from ray_sentinel_plugins._rdma_names import COUNTERS, CounterFiles

STATE = Metric(
    "hw_rdma_port_state", "gauge", "1 if the port is active, 0 if not.", ("device", "port")
)

MAX_DEVICES = 256
"""Most RDMA devices that get series."""
MAX_PORTS = 256
"""Most ports of one device that are read; switches have many."""
SATURATED = (1 << 32) - 1
"""The value at which the PMA's 32-bit counters stop."""
UNREAD = (1 << 64) - 1
"""The value that ionic shows for a counter that it could not find in its firmware's answer."""


class RdmaOptions(Options, frozen=True):
    """``[collectors.rdma]``"""

    device_deadline: Seconds = 2.0
    """Seconds that reading all counters of one device may take."""


class RdmaCollector(Collector):
    """Every port of every RDMA device."""

    name = "rdma"
    Options = RdmaOptions
    metrics = (*COUNTERS, STATE)

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        options: RdmaOptions = context.options or RdmaOptions()
        self._files = files_of(context, self.log)
        self._bounded: Bounded[str, list[Sample]] = Bounded(options.device_deadline, most=32)

    def collect(self) -> Iterator[Sample]:
        """Raises Skip where the kernel knows no RDMA, Absent where it has no device now."""
        root = self.context.sys / "class/infiniband"
        if not self._files.is_folder(root):
            raise Skip(f"{root} is not there: this host has no RDMA device or no driver for it")
        devices = self._files.bounded(
            self._files.names(root, expected=True), MAX_DEVICES, str(root)
        )
        if not devices:
            raise Absent(f"{root} is empty")
        found, failed = self._read([root / name for name in devices])
        for name, why in failed.items():
            self._files.complain(root / name, f"its counters are unknown: {why}")
        for name in devices:
            yield from found.get(name, [])

    def _read(self, folders: list[Path]) -> tuple[dict[str, list[Sample]], dict[str, str]]:
        if not self.context.live:
            return {folder.name: read_device(self._files, folder) for folder in folders}, {}
        return self._bounded.run(
            {folder.name: partial(read_device, self._files, folder) for folder in folders}
        )


def read_device(files: Files, device: Path) -> list[Sample]:
    """All ports of one device."""
    ports = [name for name in files.names(device / "ports") if name.isascii() and name.isdecimal()]
    samples = []
    for port in files.bounded(ports, MAX_PORTS, str(device)):
        # Some drivers show their counters once for the device; with one port they are the port's.
        spare = device / "hw_counters" if len(ports) == 1 else None
        samples += list(_read_port(files, device / "ports" / port, spare, device.name, port))
    return samples


def _read_port(
    files: Files, folder: Path, spare: Path | None, device: str, port: str
) -> Iterator[Sample]:
    labels = clean(device), clean(port)
    if (line := files.line(folder / "state")) is not None:
        active = parse_state(line)
        if active is None:
            files.complain(folder / "state", "is not a port state")
        else:
            yield STATE(int(active), *labels)
    present = {
        f"{kind}/{name}": folder / kind / name
        for kind in ("counters", "counters_ext", "hw_counters")
        for name in files.names(folder / kind)
    }
    for name in files.names(spare) if spare is not None else ():
        present.setdefault(f"hw_counters/{name}", spare / name if spare else folder)
    for metric, sources in COUNTERS.items():
        value = _first(files, present, sources)
        if value is not None:
            yield metric(value, *labels)


def _first(files: Files, present: dict[str, Path], sources: tuple[CounterFiles, ...]) -> int | None:
    """The value of the first source that the port has. One that it has but that cannot be read
    now is not replaced by another: a counter that changes its meaning would jump."""
    for source in sources:
        if all(name in present for name in source.files):
            values = [_read_counter(files, present[name]) for name in source.files]
            if "n/a" in values:
                continue
            numbers = [value for value in values if isinstance(value, int)]
            if len(numbers) < len(values) or _unread(numbers, present):
                return None
            total = sum(numbers)
            if total == SATURATED and source.wide in present:
                wide = _read_counter(files, present[source.wide])
                total = wide if isinstance(wide, int) else total
            return total * source.scale
        if source.wide in present:
            wide = _read_counter(files, present[source.wide])
            return wide * source.scale if isinstance(wide, int) else None
    return None


def _unread(numbers: list[int], present: dict[str, Path]) -> bool:
    return UNREAD in numbers and "hw_counters/rx_rdma_ucast_bytes" in present


def _read_counter(files: Files, path: Path) -> int | str | None:
    line = files.line(path, expected=True)
    if line is None:
        # bnxt_re shows the PMA's files, answers EINVAL to all, and counts in hw_counters.
        return "n/a" if files.refused(path) else None
    value = parse_counter(line)
    if value is None:
        files.complain(path, "is not a counter")
    return value


def parse_counter(line: str) -> int | str | None:
    """A counter, or "n/a" where the device has no such counter, or None if it is garbled.

    The core prints ``N/A (no PMA)`` where the port's management agent does not answer.

    >>> parse_counter("18446744073709551615"), parse_counter("N/A (no PMA)"), parse_counter("4x")
    (18446744073709551615, 'n/a', None)
    """
    return "n/a" if line.startswith("N/A") else counter(line)


def parse_state(line: str) -> bool | None:
    """``4: ACTIVE`` → True, ``1: DOWN`` → False, anything else → None.

    The numbers are those of ``enum ib_port_state``: 0 NOP, 1 DOWN, 2 INIT, 3 ARMED, 4 ACTIVE,
    5 ACTIVE_DEFER.
    """
    found = re.fullmatch(r"([0-5]):\s*([A-Z_]+)", line)
    return found.group(1) == "4" if found else None
