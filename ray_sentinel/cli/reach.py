"""Commands that speak to the coordinator: the common options, and the connection."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol, TypeVar

import msgspec

from ray_sentinel.errors import UsageError

T = TypeVar("T")


def add_common(parser: argparse.ArgumentParser) -> None:
    """``--address`` and ``--json``."""
    parser.add_argument(
        "--address",
        default="",
        metavar="HOST:PORT",
        help="address of the Ray cluster (default: RAY_ADDRESS, or else the one on this machine)",
    )
    parser.add_argument("--json", action="store_true", help="print JSON instead of text")


def add_session(parser: argparse.ArgumentParser) -> None:
    """``--temp-dir`` and ``--address``, for commands that read a Ray session's own logs."""
    parser.add_argument(
        "--temp-dir",
        type=Path,
        metavar="DIR",
        help="temp dir of this machine's Ray session (default: RAY_TEMP_DIR, or else /tmp/ray)",
    )
    parser.add_argument(
        "--address",
        default="",
        metavar="HOST:PORT",
        help="address of the Ray cluster, to reach other nodes (default: RAY_ADDRESS, or else the "
        "session's own cluster)",
    )


def add_url(parser: argparse.ArgumentParser) -> None:
    """``--url``, for commands that only read."""
    parser.add_argument(
        "--url",
        default="",
        metavar="LINK",
        help="ask the coordinator's page at this link instead of Ray, for example through a tunnel",
    )
    parser.add_argument(
        "--token-file",
        default="",
        metavar="FILE",
        help="file with the token for --url, or with the whole link (other users can see a token "
        "on the command line)",
    )


class Asked(Protocol):
    """A coordinator that answers, over Ray or over HTTP."""

    def ask(self, method: str, kind: type[T], *arguments: Any, seconds: float = 10.0) -> T:
        """Call a method and decode its answer. Raises UnreachableError."""

    def page_link(self) -> str:
        """The page's link with its token; empty if it is not known here."""

    def renew(self) -> None:
        """Find the coordinator again: another one may be in its place. Raises UnreachableError."""


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
        """The page's link with its token; empty if there is no page, or an older version."""
        from ray_sentinel.actors.deployment import deploy

        return deploy.page_link(self.ray, self._handle)

    def renew(self) -> None:
        """Find the coordinator again: another one may be in its place. Raises UnreachableError."""
        from ray_sentinel.actors.deployment import deploy

        self._handle = deploy.find(self.ray)

    def call(self, method: str, *arguments: Any, seconds: float = 10.0) -> Any:
        """Call a method whose answer is plain. Raises UnreachableError."""
        from ray_sentinel.actors.deployment import deploy

        return deploy.ask(self.ray, self._handle, method, *arguments, seconds=seconds)


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
