"""Which host and GPU a series belongs to, whatever its source labels them with.

Our series carry ``host``. Ray's ``ray_node_*`` carry ``ip`` (and ``instance``), dcgm-exporter's
``Hostname``. An address is turned into a host name where any series carries both; else the address
itself is the host.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from ray_sentinel import regex as re
from ray_sentinel.diagnose.catalog import GPU_LABELS, HOST_LABELS

_NAMES = tuple(label for label in HOST_LABELS if label != "ip")
_PORT = re.compile(r":\d+$")


def address_of(labels: Mapping[str, str]) -> str:
    """The network address in the labels, without a port; empty if there is none."""
    return labels.get("ip") or _PORT.sub("", labels.get("instance", ""))


def aliases(label_sets: Iterable[Mapping[str, str]]) -> dict[str, str]:
    """Address → host name, from series that carry both; an ambiguous address is left out."""
    found: dict[str, set[str]] = {}
    for labels in label_sets:
        host = next((labels[name] for name in _NAMES if labels.get(name)), "")
        if not host:
            continue
        for address in {labels.get("ip", ""), _PORT.sub("", labels.get("instance", ""))}:
            if address and address != host:
                found.setdefault(address, set()).add(host)
    return {address: next(iter(hosts)) for address, hosts in found.items() if len(hosts) == 1}


def host_of(labels: Mapping[str, str], known: Mapping[str, str]) -> str:
    """The host of a series; empty where the labels name none."""
    for label in HOST_LABELS:
        if value := labels.get(label):
            return known.get(value, value)
    address = address_of(labels)
    return known.get(address, address)


def gpu_of(labels: Mapping[str, str]) -> str:
    """The GPU of a series; empty where it belongs to the whole host."""
    for label in GPU_LABELS:
        if value := labels.get(label):
            return value
    return ""
