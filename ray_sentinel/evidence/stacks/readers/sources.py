"""Whose stacks a file holds: host, pid and rank from its path and its first lines.

Captures are named ``TOOL_HOST_PID.txt`` (``pyspy_node07_4711.txt``). Files with other names are
accepted too; then the host is empty and the pid is that in the text.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from ray_sentinel import regex as re
from ray_sentinel.evidence.ranks import OTHER_RANK
from ray_sentinel.evidence.stacks.readers import text as tx

_NAMED = re.compile(
    r"^(?P<tool>py[-_]?spy(?:[-_]?native)?|cuda[-_]?gdb|gdb|kernel|faulthandler|pystack)[-_]"
    r"(?P<host>.+)[-_](?P<pid>\d+)"
    r"(?:[._-](?P<rest>.*?))?\.(?:txt|json|log|out|dump|trace)$",
    re.IGNORECASE,
)
_NO_HOST = re.compile(r"(?:global[-_])?rank[-_]\d+[._-]", re.IGNORECASE)
_RANK_IN_PATH = re.compile(r"(?:^|[^a-z])rank[-_ =]?(\d{1,6})(?!\d)", re.IGNORECASE)
_RANK_IN_HEAD = re.compile(
    r"^\[rank(\d{1,6})\]:|^\W*(?:global[ _]?)?rank\s*(?:[:=#]\s*)?(\d{1,6})\b|\bRANK=(\d{1,6})\b"
    r"|(?<![\w-])--?(?:global[-_])?rank[= ](\d{1,6})\b",
    re.IGNORECASE,
)
_LOCAL = re.compile(r"--?local[-_]rank[= ](\d{1,3})(?!\d)")
_TITLE = re.compile(r"(?<![A-Za-z])(TP|PP|DP|EP|CP)_?(\d{1,5})(?!\d)")
_ENGINE = re.compile(r"sglang::scheduler|VLLM::Worker|vllm.*Worker_TP", re.IGNORECASE)


class SourceLocation(msgspec.Struct, frozen=True, kw_only=True):
    """What a file's path shows."""

    tool: str = ""
    host: str = ""
    pid: int = 0
    rank: int | None = None


def from_path(path: str) -> SourceLocation:
    """The tool, host, pid and rank in ``path``, as far as it has them."""
    name = path.replace("\\", "/").rsplit("/", 1)[-1]
    rank = _RANK_IN_PATH.findall(OTHER_RANK.sub("", path))
    known_rank = int(rank[-1]) if rank else None
    match = _NAMED.match(name)
    if match is None or _NO_HOST.match(name, match.start("host")):
        return SourceLocation(tool=re.split(r"[_.]", name, maxsplit=1)[0].lower(), rank=known_rank)
    tool = match["tool"].lower().replace("-", "").replace("_", "")
    return SourceLocation(
        tool=tool.removesuffix("native"),
        host=match["host"],
        pid=tx.number(match["pid"]),
        rank=known_rank,
    )


def rank_in_text(text: str) -> int | None:
    """The rank that a comment or a command line at the head of the output names."""
    for line in list(tx.lines(text[:8_000]))[:15]:
        if line.lstrip().startswith(("Thread", "#0")):
            return None
        if (match := _RANK_IN_HEAD.search(OTHER_RANK.sub("", line))) is not None:
            return int(next(group for group in match.groups() if group))
    return None


def place_in_title(command: str) -> tuple[int, int] | None:
    """(pipeline rank, tensor rank) in an engine's process title (``sglang::scheduler_PP1_TP3``).

    None for other processes, and with data or context parallelism beside them: then the world rank
    does not follow from the title.
    """
    if not _ENGINE.search(command):
        return None
    parts = {key.upper(): int(value) for key, value in _TITLE.findall(command)}
    if "TP" not in parts or parts.get("DP") or parts.get("CP"):
        return None
    return parts.get("PP", 0), parts["TP"]


def ranks_of_titles(commands: Iterable[str]) -> dict[str, int]:
    """World ranks by title, for the titles of one engine's processes: stages × tensor ranks.

    How wide a stage is follows from its titles: with several stages all of them must be there.
    """
    places = {command: place for command in commands if (place := place_in_title(command))}
    width = 1 + max((tensor for _, tensor in places.values()), default=0)
    stages = 1 + max((stage for stage, _ in places.values()), default=0)
    if stages > 1 and len(set(places.values())) < stages * width:
        return {}
    return {command: stage * width + tensor for command, (stage, tensor) in places.items()}


def local_rank(command: str) -> int | None:
    """The rank within its node that a launcher put on the command line (``--local_rank=3``)."""
    match = _LOCAL.search(command)
    return int(match[1]) if match else None


def ranks_on_one_host(commands: Iterable[tuple[str, int, str]]) -> dict[tuple[str, int], int]:
    """World ranks by (host, pid) if all processes are on one host: the ranks within it.

    ``commands`` are (host, pid, command line). Empty where two processes claim one rank, or where
    several hosts are seen: then a node's ranks are not the job's.
    """
    found = {
        (host, pid): rank
        for host, pid, command in commands
        if (rank := local_rank(command)) is not None
    }
    one_host = len({host for host, _ in found}) == 1
    return found if one_host and len(set(found.values())) == len(found) else {}
