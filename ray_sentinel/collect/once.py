"""Runs collectors once, here, on a live machine or on a captured tree."""

from __future__ import annotations

import os
import selectors
import socket
from collections.abc import Callable, Iterable
from pathlib import Path

import msgspec
from msgspec.structs import asdict

from ray_sentinel import regex as re
from ray_sentinel.clock import SystemClock
from ray_sentinel.collect.child_registry import ChildRegistry
from ray_sentinel.collect.protocol import CollectorSource, Roots
from ray_sentinel.collect.runner_context import CollectorConfig, RunnerContext
from ray_sentinel.collect.version import Version
from ray_sentinel.model.metrics import Event, Family
from ray_sentinel.model.ray_cluster import RayCluster
from ray_sentinel.regular_file import read_regular

_LOG_LINES = 1000
_HOST_NAME = 255
"""Most bytes of a host name in the domain name system."""


class CollectorResult(msgspec.Struct, frozen=True, kw_only=True):
    """The result of one collector."""

    collector: str
    success: bool
    """Whether it did not fail; a collector that asked to be left out has not failed."""
    skipped: str
    """Why the collector asked to be left out; empty if it did not."""
    seconds: float | None
    families: tuple[Family, ...]
    events: tuple[Event, ...]
    problems: tuple[str, ...]
    """What the collector could not read or may not serve; if it failed, the reason comes first."""
    log: tuple[str, ...] = ()
    misconfigured: bool = False
    """Whether it failed because its settings are wrong; the first problem says which."""


def collect_once(
    wanted: Iterable[tuple[CollectorSource, CollectorConfig]],
    *,
    host: str,
    roots: Roots,
    state_dir: Path | None = None,
    cluster: Callable[[], RayCluster | None] = lambda: None,
) -> list[CollectorResult]:
    """Run each collector once, in parallel, each in a process of its own under its deadline.

    ``cluster`` asks Ray's control store, for collectors that want to know about the cluster.
    """
    clock = SystemClock()
    logs: dict[str, list[str]] = {}
    with selectors.DefaultSelector() as selector:
        around = RunnerContext(
            host=host,
            clock=clock,
            selector=selector,
            children=ChildRegistry(None),
            environ=os.environ,
            write_log=lambda name, line: _keep(logs.setdefault(name, []), line),
            on_events=lambda events: None,  # they wait in ``held_events``
            roots=Roots(**{name: path.absolute() for name, path in asdict(roots).items()}),
            live=roots.live,
            state_dir=state_dir,
            cluster=cluster,
        )
        versions = [Version(source, settings, around) for source, settings in wanted]
        for version in versions:
            version.held_events = []
        _run(versions, selector, clock)
    return [_result(version, logs.get(version.source.name, [])) for version in versions]


def host_of(roots: Roots) -> str:
    """The short host name of the machine that the files are from."""
    if not roots.live and (name := _stored_name(roots.proc / "sys/kernel/hostname")):
        return name
    return socket.gethostname().split(".")[0]


def _stored_name(path: Path) -> str:
    """The first part of the host name in a captured tree; empty if there is none. There may be
    anything in its place: a FIFO is not waited for."""
    try:
        text = read_regular(path, _HOST_NAME).decode("utf-8", "replace").strip()
    except OSError:
        return ""
    found = re.fullmatch(r"([\w-]+)(\.[\w.-]*)?", text, re.ASCII)
    return found.group(1) if found else ""


def _run(versions: list[Version], selector: selectors.BaseSelector, clock: SystemClock) -> None:
    """Wait until each has answered or failed, and its process has ended or cannot be killed."""
    while waiting := [version for version in versions if not version.over]:
        now = clock.monotonic()
        for version in waiting:
            if version.judgeable:
                version.retire(now)
            version.step(now)
        pause = max(0.0, min(version.at for version in waiting) - clock.monotonic())
        for key, _ in selector.select(min(pause, 0.5)):
            key.data()


def _result(version: Version, log: list[str]) -> CollectorResult:
    failed = version.last.success is False
    error = (version.message() or "its process has ended") if failed else ""
    return CollectorResult(
        collector=version.source.name,
        success=not failed,
        skipped=version.skipped,
        seconds=version.last.seconds,
        families=version.last.families,
        events=tuple(version.held_events or ()),
        problems=((error,) if failed else ()) + version.last.problems,
        log=tuple(log),
        misconfigured=failed and version.last.misconfigured,
    )


def _keep(lines: list[str], line: str) -> None:
    if len(lines) < _LOG_LINES:
        lines.append(line)
