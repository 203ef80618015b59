"""The text output of ``ncclras`` and of ``STATUS`` on the socket (NCCL 2.24 and later, RCCL).

It is made for people: communicators that look alike share a row, and of each property only the
outliers are named. What is said of a rank's counterpart is kept all the same: where a group of
ranks is counted and not named, and all others are, the rest of the numbers are its members.

Lines are recognised wherever they stand: outputs are quoted in logs, behind prefixes, indented.
"""

from __future__ import annotations

from ray_sentinel import regex as re
from ray_sentinel.evidence.nccl_ras.poll import Poll
from ray_sentinel.evidence.nccl_ras.text_phrases import EVENT
from ray_sentinel.evidence.nccl_ras.text_reader import RasTextReader

MARKS = (
    "Job summary",
    "Communicators...",
    "Missing communicator data",
    "managed by process",
    "launched up to operation",
    "considered dead (unreachable",
    "No communicator data collected",
)
_ENDLESS = re.compile(r"(\d{18})\d+")
"""No number that means something has more digits; Python refuses to read one of thousands."""
_FIRST = re.compile(r"[NR]CCL version \d|Job summary|Communicators\.\.\.")


def is_output(text: str) -> bool:
    """Whether a text holds such an output."""
    return any(mark in text for mark in MARKS) or EVENT.search(text) is not None


def polls_of(text: str, name: str = "") -> list[Poll]:
    """The outputs in a text, in their order: there may be several, one below the other."""
    pieces: list[list[str]] = [[]]
    stage = 0
    for line in _ENDLESS.sub(r"\1", text).splitlines():
        if not line or line.isspace():
            continue
        found = _FIRST.search(line)
        if found is not None:
            order = {"J": 2, "C": 3}.get(found[0][0], 1)
            if order <= stage:
                pieces.append([])
            stage = order
        pieces[-1].append(line)
    polls = [RasTextReader(name).read(lines) for lines in pieces if is_output("\n".join(lines))]
    return [poll for poll in polls if poll is not None]
