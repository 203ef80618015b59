"""Ray's dashboard and control store are not offered to the internet.

Both run code for whoever reaches them: the dashboard's job API as the cluster's user, and the
control store for any process that joins as a node. They belong on private addresses.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable

import msgspec
import psutil

from ray_sentinel.doctor.check import Check, CheckInput, CheckResult, Here, failure, ok, skipped
from ray_sentinel.doctor.plan import RunPlan
from ray_sentinel.progress.proc.process_memory import memory_file

_SERVERS = (
    ("gcs_server", "control store", "ray start --head --node-ip-address=<a private address>"),
    ("dashboard.py", "dashboard", "ray start --head --dashboard-host=127.0.0.1"),
)
"""For each server: a part of its command line, what it is, and how it is kept private."""
_ANY = ("0.0.0.0", "::")


class Offer(msgspec.Struct, frozen=True):
    """One of Ray's servers that listens."""

    what: str
    address: str
    port: int


class ExposureFacts(msgspec.Struct, frozen=True):
    """Ray's servers on this node, and the node's public addresses."""

    offers: tuple[Offer, ...]
    public: tuple[str, ...] = ()


class ExposureCheck(Check[ExposureFacts]):
    """Reads the kernel's table of listening sockets, and the interfaces' addresses."""

    name = "exposure"
    about = "Ray's own ports are private"
    facts = ExposureFacts

    def look(self, plan: RunPlan, here: Here) -> ExposureFacts | None:
        """Which of Ray's servers listens where; None on a node that runs neither."""
        offers = set()
        for entry in psutil.net_connections("tcp"):
            if entry.status != psutil.CONN_LISTEN or not entry.laddr or entry.pid is None:
                continue
            if what := _server(entry.pid):
                offers.add((what, *entry.laddr))
        if not offers:
            return None
        found = tuple(Offer(what, address, port) for what, address, port in sorted(offers))
        return ExposureFacts(found, tuple(sorted(public_addresses())))

    def judge(self, case: CheckInput[ExposureFacts]) -> Iterable[CheckResult]:
        """A server that listens on a public address, or on all if one is public, is a failure."""
        if not case.seen:
            yield skipped("no control store or dashboard of Ray's is here")
            return
        bad = [
            _exposed(offer, facts.public, host)
            for host, facts in case.seen.items()
            for offer in _unique(facts.offers)
            if _is_public(offer.address, facts.public)
        ]
        yield from bad or [ok("Ray's control store and dashboard have private addresses only")]


def _unique(offers: Iterable[Offer]) -> list[Offer]:
    """One of each server and address: Ray opens several ports for the same thing."""
    return list({(offer.what, offer.address): offer for offer in offers}.values())


def _is_public(address: str, public: tuple[str, ...]) -> bool:
    return bool(public) if address in _ANY else ipaddress.ip_address(address).is_global


def _exposed(offer: Offer, public: tuple[str, ...], host: str) -> CheckResult:
    where = f"all addresses, {', '.join(public)} among them," if offer.address in _ANY else (
        f"{offer.address}, a public address,"
    )  # fmt: skip
    how = next(remedy for _, what, remedy in _SERVERS if what == offer.what)
    return failure(
        f"Ray's {offer.what} listens on {where} port {offer.port}: whoever reaches it can run "
        "code in the cluster",
        f"{how}, or close port {offer.port} to the internet in a firewall",
        host,
    )


def public_addresses() -> set[str]:
    """Addresses of this node that the internet may reach."""
    found = set()
    for entries in psutil.net_if_addrs().values():
        for entry in entries:
            try:
                address = ipaddress.ip_address(entry.address.partition("%")[0])
            except ValueError:
                continue  # a hardware address
            if address.is_global:
                found.add(str(address))
    return found


def _server(pid: int) -> str:
    """Which of Ray's servers a process is; empty for any other."""
    line = (memory_file(pid, "cmdline") or b"").decode("utf-8", "replace")
    # The dashboard's own agents on every node have other programs.
    words = {word.rpartition("/")[2] for word in line.split("\0")}
    return next((what for name, what, _ in _SERVERS if name in words), "")
