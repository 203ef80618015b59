"""From the bytes of files to polls."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from ray_sentinel import regex as re
from ray_sentinel.errors import InputError
from ray_sentinel.evidence.logs.errors.watchdog import read_work
from ray_sentinel.evidence.logs.lines.lines import ENDLESS
from ray_sentinel.evidence.nccl_ras.json_format import death_of, is_event, is_status, poll_of
from ray_sentinel.evidence.nccl_ras.lenient_json import documents
from ray_sentinel.evidence.nccl_ras.poll import Poll, RasProcess
from ray_sentinel.evidence.nccl_ras.text_phrases import EVENT
from ray_sentinel.evidence.nccl_ras.text_reader import RasTextReader

# The text output of ``ncclras`` and of ``STATUS`` on the socket (NCCL 2.24 and later, RCCL).
#
# It is made for people: communicators that look alike share a row, and of each property only the
# outliers are named. The counterparts can still be derived: if one group of ranks is only counted,
# and all others are named, the remaining numbers are its members.
#
# Lines are recognised wherever they stand: outputs are quoted in logs, behind prefixes, indented.

MARKS = (
    "Job summary",
    "Communicators...",
    "Missing communicator data",
    "managed by process",
    "launched up to operation",
    "considered dead (unreachable",
    "No communicator data collected",
)
_FIRST = re.compile(r"[NR]CCL version \d|Job summary|Communicators\.\.\.")


def is_output(text: str) -> bool:
    """Whether a text contains output of RAS."""
    return any(mark in text for mark in MARKS) or EVENT.search(text) is not None


def polls_of(text: str, name: str = "") -> list[Poll]:
    """The outputs in a text, in order: there may be several, one after the other."""
    pieces: list[list[str]] = [[]]
    stage = 0
    for line in ENDLESS.sub(r"\1", text).splitlines():
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


MOST_CHARACTERS = 4096
"""Of a line that is read for the watchdog's words."""
MOST_BYTES = 256 << 20
"""Most bytes read of one file, which may hold many polls; the rest is left out."""
HINT = "it is no output of ncclras or rcclras, nor of STATUS on port 28028, as text or as JSON"


def read(data: bytes, name: str = "") -> list[Poll]:
    """The polls in one file, oldest first.

    Raises InputError without the file's name if there is none.
    """
    data = data[:MOST_BYTES]
    if data and not data.strip(b"\0"):
        raise InputError("holds only zero bytes: its machine may have crashed")
    text = data.decode("utf-8", "replace")
    if "\x00" in text:
        text = _wide(data) or text.replace("\x00", " ")
    found, dead = _json(text, name)
    if not found:
        found = polls_of(text, name)
    if dead:
        found = [*found[:-1], _with_dead(found[-1] if found else Poll(name=name), dead)]
    if not found:
        raise InputError(_why_none(text))
    return found


def _json(text: str, name: str) -> tuple[list[Poll], dict[tuple[str, int], RasProcess]]:
    """Answers to STATUS, and the processes that monitoring mode has seen die."""
    polls: list[Poll] = []
    dead: dict[tuple[str, int], RasProcess] = {}
    if "{" not in text:
        return polls, dead
    for document in documents(text):
        if is_status(document.value):
            polls.append(poll_of(document, name))
        elif is_event(document.value) and (process := death_of(document.value)) is not None:
            dead[process.host, process.pid] = process
    return polls, dead


def _with_dead(poll: Poll, dead: dict[tuple[str, int], RasProcess]) -> Poll:
    known = {(process.host, process.pid) for process in poll.dead}
    added = tuple(process for key, process in dead.items() if key not in known)
    return msgspec.structs.replace(
        poll, dead=(*poll.dead, *added), dead_count=poll.dead_count + len(added)
    )


def _why_none(text: str) -> str:
    """What the file contains instead: one of the messages that a client prints when it fails."""
    for mark in ("Failed to connect to the NCCL RAS", "Connection refused", "Connection timed out"):
        if mark in text:
            return f"holds a failed query only ({mark!r}): the service did not answer"
    if not text.strip():
        return "is empty: the service closed the connection without an answer"
    return HINT


def _wide(data: bytes) -> str:
    """Text that a shell on Windows redirected as UTF-16."""
    for codec in ("utf-16-le", "utf-16-be") if data[:2] in (b"\xff\xfe", b"\xfe\xff") else ():
        try:
            return data.decode(codec).lstrip("\ufeff")
        except UnicodeDecodeError:
            continue
    return ""


def watchdog_note(data: bytes, name: str) -> str:
    """A sentence about what PyTorch's watchdog wrote into the same file, for it knows which
    collective timed out; empty if it wrote nothing."""
    if b"atchdog" not in data:
        return ""
    lines = data.decode("utf-8", "replace").split("\n")
    works = [read_work(line[:MOST_CHARACTERS], None) for line in lines if "atchdog" in line]
    known = [work for work in works if work is not None and work.seq is not None]
    if not known:
        return ""
    first = min(known, key=lambda work: work.seq or 0)
    ranks = sorted({work.rank for work in known})
    who = ", ".join(map(str, ranks[:8])) + (" and more" if len(ranks) > 8 else "")
    return (
        f"{name} also has lines of PyTorch's watchdog: ranks {who} timed out, first in "
        f"{first.operation or 'a collective'} number {first.seq}; who times out waits, and "
        "`ray-sentinel triage` reads who did not come"
    )


def in_order(polls: Iterable[Poll]) -> list[Poll]:
    """Oldest first if all have their time, otherwise as given."""
    found = list(polls)
    if all(poll.timestamp for poll in found):
        found.sort(key=lambda poll: poll.timestamp)
    return found
