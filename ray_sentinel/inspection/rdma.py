"""The traffic of each RDMA device: its byte counters, read twice.

EFA's ``hw_counters/{rx,tx}_bytes`` (and RDMA reads and writes) count bytes; InfiniBand's
``counters/port_{rcv,xmit}_data`` count words of four bytes
(``Documentation/ABI/stable/sysfs-class-infiniband``).
"""

from __future__ import annotations

import time
from pathlib import Path

from ray_sentinel.kernel_files import kernel_number, kernel_text
from ray_sentinel.model.health import DeviceTraffic, Transport

WINDOW = 1.0
"""Seconds between the two readings."""
_WORDS = ("counters/port_rcv_data", "counters/port_xmit_data")
_BYTES = (
    "hw_counters/rx_bytes",
    "hw_counters/tx_bytes",
    "hw_counters/rdma_read_bytes",
    "hw_counters/rdma_write_bytes",
)


def device_traffic(sys: Path = Path("/sys"), window: float = WINDOW) -> tuple[DeviceTraffic, ...]:
    """The traffic of every port of every RDMA device; waits for ``window`` seconds if there is
    one."""
    ports = sorted((sys / "class" / "infiniband").glob("*/ports/*"))
    if not ports:
        return ()
    before = [_count(port) for port in ports]
    began = time.monotonic()
    time.sleep(window)
    seconds = max(time.monotonic() - began, 1e-3)
    found = []
    for port, first in zip(ports, before, strict=True):
        last = _count(port)
        moved = last - first if first is not None and last is not None else None
        found.append(
            DeviceTraffic(
                device=port.parts[-3],
                port=port.name,
                kind=_kind(port),
                active="ACTIVE" in kernel_text(port / "state"),
                bytes_per_second=moved / seconds if moved is not None and moved >= 0 else None,
            )
        )
    return tuple(found)


def _kind(port: Path) -> Transport:
    driver = (port.parent.parent / "device" / "driver").resolve().name
    if driver == "efa" or port.parts[-3].startswith("efa"):
        return "efa"
    layer = kernel_text(port / "link_layer")
    return {"InfiniBand": "infiniband", "Ethernet": "roce"}.get(layer, "other")  # type: ignore[return-value]


def _count(port: Path) -> int | None:
    words = [value for name in _WORDS if (value := kernel_number(port / name)) is not None]
    if any(words):
        return 4 * sum(words)
    counted = [value for name in _BYTES if (value := kernel_number(port / name)) is not None]
    return sum(counted) if counted else 4 * sum(words) if words else None
