"""The connection of commands that speak to the coordinator."""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol, TypeVar

import msgspec

from ray_sentinel.errors import UsageError
from ray_sentinel.model.status import NodeStatus, Unwatched

T = TypeVar("T")


class Asked(Protocol):
    """A coordinator that answers, over Ray or over HTTP."""

    def ask(self, method: str, kind: type[T], *arguments: Any, seconds: float = 10.0) -> T:
        """Call a method and decode its answer. Raises UnreachableError."""

    def page_link(self) -> str:
        """The page's link with its token; empty if it is not known here."""

    def renew(self) -> None:
        """Find the coordinator again: another one may be in its place. Raises UnreachableError."""


N = TypeVar("N", NodeStatus, NodeStatus | Unwatched)


def nodes_named(nodes: Iterable[N], name: str) -> list[N]:
    """The nodes that a user means by ``name``: a host, an address or an id, or else the beginning
    of an id (at least 4 characters)."""
    known = list(nodes)
    exact = [
        node
        for node in known
        if name in (node.host, node.id) or (isinstance(node, NodeStatus) and name == node.address)
    ]
    return exact or [node for node in known if len(name) >= 4 and node.id.startswith(name)]


class CoordinatorConnection:
    """A connection to a running coordinator."""

    def __init__(self, ray: Any, handle: Any) -> None:
        self.ray = ray
        self._handle = handle

    def ask(self, method: str, kind: type[T], *arguments: Any, seconds: float = 10.0) -> T:
        """Call a method and decode its answer. Raises UnreachableError."""
        from ray_sentinel.actors.deployment import deploy

        raw = deploy.ask(self.ray, self._handle, method, *arguments, seconds=seconds)
        return msgspec.msgpack.decode(raw, type=kind)

    def page_link(self) -> str:
        """The page's link with its token; empty if there is no page."""
        from ray_sentinel.actors.deployment import deploy

        return deploy.page_link(self.ray, self._handle)

    def renew(self) -> None:
        """Find the coordinator again: another one may be in its place. Raises UnreachableError."""
        from ray_sentinel.actors.deployment import deploy

        self._handle = deploy.find(self.ray)

    def call(self, method: str, *arguments: Any) -> Any:
        """Call a method whose answer is plain. Raises UnreachableError."""
        from ray_sentinel.actors.deployment import deploy

        return deploy.ask(self.ray, self._handle, method, *arguments)


@contextmanager
def coordinator(address: str) -> Iterator[CoordinatorConnection]:
    """Connect to the cluster and find its coordinator. Raises UnreachableError."""
    from ray_sentinel.actors.deployment import cluster, deploy

    with cluster.connect(address) as ray:
        yield CoordinatorConnection(ray, deploy.find(ray))


@contextmanager
def asked(args: argparse.Namespace) -> Iterator[Asked]:
    """The coordinator of ``--url``, else of ``--address``. Raises UnreachableError."""
    if args.token_file and not args.url:
        raise UsageError("--token-file is for --url: name the page that the token is for")
    if args.url:
        from ray_sentinel.cli.remote import RemoteCoordinator
        from ray_sentinel.http.page_client import token_in

        token = token_in(Path(args.token_file)) if args.token_file else ""
        yield RemoteCoordinator(args.url, token)
        return
    with coordinator(args.address) as found:
        yield found
