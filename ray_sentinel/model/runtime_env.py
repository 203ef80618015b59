"""Runtime environments of a node: those that are being built, and how long the others took."""

from __future__ import annotations

import hashlib

import msgspec


class EnvironmentBuild(msgspec.Struct, frozen=True, kw_only=True):
    """An environment that is being built."""

    key: str
    """Its key, as ``environment_key`` makes it."""
    what: str = ""
    """What it contains, such as "pip: torch, vllm; working_dir: code.zip"."""
    since: float | None = None
    """Unix time since when it has been built; None if unknown."""


class NodeEnvironments(msgspec.Struct, frozen=True, kw_only=True):
    """The answer of Ray's agent that builds them on one node, and what is visible of it."""

    node: str = ""
    """Ray's node id, in hex."""
    host: str = ""
    answers: bool = True
    """Whether the agent answers. It is False where it accepts the question and does not answer:
    while it downloads, it serves nobody and builds nothing else."""
    building: tuple[EnvironmentBuild, ...] = ()
    made: dict[str, float] = {}
    """The seconds that it took to build each environment that is ready, by key."""
    line: str = ""
    """What the newest log of a build said last."""
    moves: int | None = None
    """A number that differs once any building process has been put on a CPU; None where that cannot
    be known."""
    moved: bool | None = None
    """Whether that number changed from one round of a look to the next."""
    problem: str = ""


def environment_key(serialized: str) -> str:
    """Identifies a runtime environment by Ray's text of it, which may hold secrets; empty if
    nothing is to be built.

    >>> environment_key("{}"), len(environment_key('{"pip": ["torch"]}'))
    ('', 16)
    """
    if serialized in ("", "{}"):
        return ""
    return hashlib.sha256(serialized.encode("utf-8", "replace")).hexdigest()[:16]
