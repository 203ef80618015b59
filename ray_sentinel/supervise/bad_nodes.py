"""Which nodes are bad: the machine or its device failed, not only a rank on it. Pure.

The sources are the sentinel's confirmed incidents and the triage of an attempt's output. A rank
that crashed, was stopped, spins or sleeps is no evidence against its node. Neither is one that
waits for its GPU, as long as no counter or driver of that GPU reports a fault: a kernel of the
program may never end.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from ray_sentinel import regex as re
from ray_sentinel.model.incident import Culprit, Incident, Verdict
from ray_sentinel.model.triage import Triage

CONFIRMED = frozenset({"confirmed", "captured", "explained", "resolved"})
CLASSES = frozenset({"gpu-lost", "link-down", "node-fail"})
PROGRAMS = frozenset({"cuda-device-gone", "xid-application"})
"""Signatures of these classes that are often caused by the program or its settings, and so blame no
node."""
SURE = 0.5
"""Confidence below which triage's answer blames no node."""
_TELEMETRY = "telemetry"
"""The source of evidence that comes from counters and drivers."""
_DRIVER = re.compile(
    r"\b(?:nvidia|nv|nvkms|uvm|os_acquire|amdgpu|kfd|ttm|drm|dma_fence|mlx[45]|uverbs|ib_uverbs|efa"
    r"|bnxt)_\w+|\b_nv\d+rm\b"
)
"""Kernel functions of GPU and RDMA drivers. Those of file systems are left out: a file system that
hangs is no fault of the node."""
_HOST = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._:-]{0,252}[A-Za-z0-9])?")


class BadNode(msgspec.Struct, frozen=True, kw_only=True):
    """A node that the next attempt must not use."""

    host: str
    """A host name or an address: letters, digits, ``.``, ``-``, ``_`` and ``:`` only."""
    why: str
    at: float | None = None
    """Unix time in seconds at which the node was first suspected; None if this is not known."""


def of_incidents(incidents: Iterable[Incident], job: str) -> tuple[BadNode, ...]:
    """The bad nodes by the job's incidents; a node of several incidents occurs several times."""
    return tuple(node for one in incidents if one.job == job for node in of_incident(one))


def of_incident(incident: Incident) -> tuple[BadNode, ...]:
    """The bad nodes by one incident."""
    verdict = incident.verdict
    if verdict is None or incident.state not in CONFIRMED:
        return ()
    found: list[BadNode] = []
    for culprit in verdict.culprits:
        if fault := _fault_of_node(verdict, culprit):
            why, at = f"{fault} (incident {incident.id})", incident.suspected_at
            found += unknown(_named(culprit.host, why, at), found)
    return tuple(found)


def _fault_of_node(verdict: Verdict, culprit: Culprit) -> str:
    """What is wrong with the culprit's node or its device; empty if nothing is known to be
    wrong."""
    if verdict.kind == "node-lost" or culprit.gpu:
        return culprit.reason
    if verdict.kind == "network" and (culprit.pid is None or culprit is verdict.culprits[0]):
        return culprit.reason  # the verdict's kind is that of its first culprit
    if culprit.rank is None and not culprit.role:
        return ""
    ranked = [item for item in verdict.evidence if item.rank is not None]
    about = [item for item in ranked if item.rank == culprit.rank]
    for item in about:
        # However the rank itself ended: its device was broken before the job stopped.
        if item.source == _TELEMETRY and item.weight > 0:
            return item.text
    if verdict.kind == "kernel-blocked":
        texts = [culprit.reason, *(item.text for item in about)]
        return next((text for text in texts if _DRIVER.search(text)), "")
    return ""


def of_triage(answer: Triage) -> tuple[BadNode, ...]:
    """The bad nodes by the attempt's output."""
    if answer.kind not in CLASSES or answer.confidence < SURE or answer.signature in PROGRAMS:
        return ()
    found: list[BadNode] = []
    for culprit in answer.culprits:
        # "Node failure on node[7-9]" names several, and none of them is called "node".
        several = re.compile(rf"\b{re.escape(culprit.node)}\[\d[\d,-]*\]")
        if any(several.search(line.text) for line in answer.evidence):
            continue
        why = f"{answer.kind}: {culprit.reason or answer.summary}"
        found += unknown(_named(culprit.node, why), found)
    return tuple(found)


def _named(host: str, why: str, at: float | None = None) -> tuple[BadNode, ...]:
    """None if the name is not a valid one: it comes from logs, and goes to a launcher."""
    name = host.strip().rstrip(".,:;")
    fits = _HOST.fullmatch(name) is not None and name != "localhost"
    return (BadNode(host=name, why=" ".join(why.split())[:300], at=at),) if fits else ()


def unknown(found: Iterable[BadNode], known: Sequence[BadNode]) -> list[BadNode]:
    """Those of ``found`` that are not in ``known`` by their short or their full name."""
    names = {_short(node.host) for node in known}
    new = []
    for node in found:
        if _short(node.host) not in names:
            names.add(_short(node.host))
            new.append(node)
    return new


def _short(host: str) -> str:
    """The name without its domain; an address as it is."""
    return host if re.fullmatch(r"[\d.]+|.*:.*", host) else host.split(".")[0].lower()
