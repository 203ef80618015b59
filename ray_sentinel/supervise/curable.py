"""Which failures a restart cannot cure. Pure."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from ray_sentinel import regex as re
from ray_sentinel.supervise.policy import Failure

HUB_TRIES = 6
"""Failures in a row to reach the model hub that are tolerated. The waits between them double, to
some five minutes in all: an outage or a rate limit (429) has passed by then, or lasts; a node
without a route to the hub never gets one."""
QUICK_SECONDS = 20.0
"""Seconds within which an attempt that ends without a step counts as not having got through its
start."""
_MISSING = re.compile(
    r"\b(?:ModuleNotFoundError|ImportError|SyntaxError|IndentationError|FileNotFoundError"
    r"|NotADirectoryError|IsADirectoryError|PermissionError|NameError)\b"
)
_CURABLE = frozenset(
    {
        "hang",
        "preempted",
        "cancelled",
        "node-fail",
        "head-lost",
        "link-down",
        "transport-lost",
        "startup-stuck",
        "engine-stalled",
        "checkpoint-load",
    }
)
_CONFIGURATION = frozenset({"config", "missing-env"})
_SHORT_OF = re.compile(r"temporarily unavailable|Cannot allocate memory|Too many open files")
"""Errors about resources that are lacking now and may be there later (man 2 fork, execve: EAGAIN,
ENOMEM, EMFILE)."""
_NOT_STARTED = {126: "the command is not executable", 127: "the command was not found"}


def incurable(failure: Failure, earlier: Sequence[Failure]) -> str:
    """Why a restart would fail in the same way; empty if it may help.

    ``earlier`` are the failures since the last progress, oldest first.
    """
    if failure.kind == "not-started":
        return "" if _SHORT_OF.search(failure.text) else failure.text
    if failure.kind == "hub-unreachable":
        return _hub_stays_away(failure, earlier)
    if failure.kind in _CURABLE:
        return ""
    if not (failure.began or failure.step is not None) and (why := _at_the_start(failure)):
        return why
    if failure.exception and any(_same(failure, other) for other in earlier):
        at = f"at step {failure.step}" if failure.step is not None else "before the first step"
        return f"the same exception {at} as before: {failure.exception}"
    return ""


def _hub_stays_away(failure: Failure, earlier: Sequence[Failure]) -> str:
    in_a_row = 1 + sum(
        1 for _ in itertools.takewhile(lambda f: f.kind == failure.kind, reversed(earlier))
    )
    if in_a_row < HUB_TRIES:
        return ""
    return (
        f"the model hub could not be reached in {in_a_row} attempts: put the files on shared "
        f"storage and set HF_HUB_OFFLINE=1 ({failure.text})"
    )


def _at_the_start(failure: Failure) -> str:
    if failure.code in _NOT_STARTED:
        return _NOT_STARTED[failure.code]
    if failure.kind in _CONFIGURATION:
        return f"it is a matter of configuration: {failure.text}"
    if _MISSING.search(failure.exception):
        return f"what it needs is missing: {failure.exception}"
    if failure.code == 2 and failure.seconds < QUICK_SECONDS:
        return "it ended with status 2 at once, as programs do that are called wrongly"
    return ""


def _same(one: Failure, other: Failure) -> bool:
    """Whether both are one failure: the same exception at one place. If the steps are not known,
    only a start counts as one place."""
    at_one_place = one.step == other.step and (
        one.step is not None or not (one.began or other.began)
    )
    return at_one_place and one.exception == other.exception


def normalised(exception: str) -> str:
    """An exception without what differs from run to run: addresses, counts, times.

    >>> normalised("RuntimeError: bad value 0x7f3a at 12:30:01 in rank 17")
    'RuntimeError: bad value N at N:N:N in rank N'
    """
    flat = re.sub(r"\b0x[0-9a-fA-F]+\b|\d+(?:\.\d+)?", "N", exception)
    return " ".join(flat.split())[:300]
