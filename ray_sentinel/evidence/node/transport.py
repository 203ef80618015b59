"""Which transport NCCL uses, from its own lines (``NCCL_DEBUG=INFO``).

In rising order of what they prove: ``NET/IB : Using [0]mlx5_0:1/RoCE`` (a device was found),
``NET/OFI Selected provider is efa`` (aws-ofi-nccl), ``Using network AWS Libfabric`` (NCCL's
choice), ``Channel 00/0 : 0[0] -> 8[0] [send] via NET/Socket/0`` (a connection that was made). A
plugin that could not be loaded says ``NET/Plugin : ... cannot open shared object file``, and NCCL
silently continues with sockets (NCCL's ``plugin/net.cc``, ``transport/net_*``).
"""

from __future__ import annotations

from collections.abc import Iterable

from ray_sentinel import regex as re
from ray_sentinel.model.health import (
    DeviceTraffic,
    Transport,
    TransportHealth,
    TransportLines,
)
from ray_sentinel.model.triage import LogLine

HINTS = (b"NET/", b"Using network")
"""The words of which every line about the transport contains one."""
_VIA = re.compile(r"\bvia NET/(?P<name>[^/\n]+)/")
_CHOSEN = re.compile(r"\bNCCL INFO Using network (?P<name>[\w ./-]+?)\s*$")
_PROVIDER = re.compile(
    r"\bNET/OFI (?:Selected|Using)(?: transport)? provider (?:is |: ?)?(?P<name>[\w;-]+)",
    re.IGNORECASE,
)
_FOUND = re.compile(r"\bNET/(?P<name>IB|Socket|OFI)\b ?:? ?Using (?P<rest>.*)")
_FAILED = re.compile(
    r"NET/(?:Plugin|OFI|IB) ?:? ?.*(?:cannot open shared object"
    r"|No (?:eligible providers|device) (?:were )?found"
    r"|initialization failed|Failed to initialize)",
    re.IGNORECASE,
)
_MISSING = re.compile(r"NET/(?:Plugin|OFI|IB) ?:? ?.*Could not find: (?P<what>.*)", re.IGNORECASE)
_OPTIONAL = re.compile(r"profiler|tuner", re.IGNORECASE)
_BUSY = 1e6
"""Bytes a second through a device that say that it is in use; not that anything is wrong."""


class _Said:
    """The strongest line so far."""

    def __init__(self) -> None:
        self.strength, self.used, self.name, self.fell_back = 0, "", "", ""
        self.lines: dict[str, LogLine] = {}

    def add(self, strength: int, used: Transport, name: str, line: LogLine) -> None:
        self.lines.setdefault(f"{strength}{used}", line)
        if strength > self.strength:
            self.strength, self.used, self.name = strength, used, name


def _failed(text: str) -> bool:
    """Whether a network's plugin did not come up; those that only profile or tune do not count."""
    if _FAILED.search(text):
        return True
    missing = _MISSING.search(text)
    return missing is not None and not _OPTIONAL.search(missing["what"])


def read_transport(lines: Iterable[LogLine]) -> TransportLines:
    """The transport that the lines show together; of several different connections, the slowest
    counts."""
    said = _Said()
    slow: LogLine | None = None
    for line in lines:
        text = line.text
        if match := _VIA.search(text):
            kind = _kind(match["name"], text)
            said.add(4, kind, match["name"].strip(), line)
            slow = line if kind == "socket" and slow is None else slow
        elif match := _CHOSEN.search(text):
            said.add(3, _kind(match["name"], text), match["name"].strip(), line)
        elif match := _PROVIDER.search(text):
            said.add(2, _kind(match["name"], text), match["name"], line)
        elif match := _FOUND.search(text):
            said.add(1, _kind(match["name"], match["rest"]), match["name"], line)
        elif _failed(text) and not said.fell_back:
            said.fell_back = text
            said.lines.setdefault("failed", line)
    used: Transport = "socket" if slow is not None else said.used  # type: ignore[assignment]
    return TransportLines(
        used=_refined(used, said),
        network=said.name,
        fell_back=said.fell_back if used == "socket" else "",
        lines=tuple(said.lines.values())[:8],
    )


def _refined(used: Transport, said: _Said) -> Transport:
    """NCCL calls RoCE "IB", and every libfabric "OFI": the device's line says which it is."""
    if used == "infiniband" and "1roce" in said.lines:
        return "roce"
    if used == "other" and "2efa" in said.lines:
        return "efa"
    return used


def _kind(name: str, text: str) -> Transport:
    lower = name.strip().lower()
    if "efa" in lower or lower == "aws libfabric":
        return "efa"
    if lower.startswith("ib"):
        return "roce" if "/roce" in text.lower() else "infiniband"
    if "socket" in lower or lower == "tcp":
        return "socket"
    return "other"


def judge_transport(
    seen: Iterable[tuple[str, TransportLines, tuple[DeviceTraffic, ...]]],
) -> TransportHealth | None:
    """The transport over all nodes (host, its lines, its devices); None if nothing at all is known.

    NCCL's own lines count first, then counters that move: a device that exists need not be in use.
    """
    devices: dict[str, None] = {}
    evidence: list[str] = []
    by_log: list[Transport] = []
    by_counter: list[Transport] = []
    for host, lines, traffic in seen:
        if lines.used:
            by_log.append(lines.used)
            evidence += [f"{host}: {line.text}" for line in lines.lines[:2]]
        if lines.fell_back:
            evidence.append(f"{host}: {lines.fell_back}")
        for device in traffic:
            devices[f"{host}/{device.device}:{device.port} ({device.kind})"] = None
            if (device.bytes_per_second or 0.0) > _BUSY:
                by_counter.append(device.kind)
                evidence.append(
                    f"{host}: {device.bytes_per_second or 0:.3g} B/s through {device.device}"
                )
    if not by_log and not devices:
        return None
    used = _weakest(by_log) or _weakest(by_counter)
    return TransportHealth(
        used=used,
        by="log" if by_log else "counters" if by_counter else "",
        devices=tuple(devices),
        efa_active=used == "efa",
        evidence=tuple(evidence[:12]),
    )


def _weakest(kinds: list[Transport]) -> Transport:
    """One node on sockets makes all of them wait for it."""
    order: tuple[Transport, ...] = ("socket", "other", "roce", "infiniband", "efa")
    return next((kind for kind in order if kind in kinds), "")
