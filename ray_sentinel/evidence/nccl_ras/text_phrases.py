"""The phrases of the text output, as patterns, and what they mean for ranks.

Formats: ``rasClientRunInit`` and ``rasClientRunComms`` in ``src/ras/client_support.cc``; 2.24 and
2.25 say ``The missing rank: 21``, ``collective operation counts`` and ``UNKNOWN`` for ``NOCOMM``.
"""

from __future__ import annotations

from ray_sentinel import regex as re
from ray_sentinel.evidence.nccl_ras.poll import State

VERSION = re.compile(r"([NR]CCL) version (\d\S*)")
GATHERED = re.compile(r"Communicators\.\.\..*?\(?(\d+(?:\.\d+)?)s\)?\s*$")
ROW = re.compile(
    r"(?:^|\s)(\d{1,9})\s+(\d{1,9})\s+(\d{1,9})\s+(\d{1,9}(?:-\d{1,9})?)\s+(\d{1,9})\s+(\d{1,9})"
    r"\s+([A-Z]+)\s+([A-Z]+(?:,[A-Z]+)*)\s*$"
)
NUMBERS = re.compile(r"(?:^|\s)(\d{1,9}(?:\s+\d{1,9}){2,4})\s*$")
SECTION = re.compile(r"#(\d+)-(\d+) \(([0-9a-fA-F]+)\) ([A-Z]+)\s*$")
JOB_SECTION = re.compile(r"(?:^|\s)(INCOMPLETE|DEAD|TIMEOUT)\s*$")
PROCESS = re.compile(r"Process (\d+) on node (\S+) managing GPUs? ([\d,]+)(?: \(NVML ([\d,]+)\))?")
EVENT = re.compile(r"\b(PEER_[A-Z_]+): Process (\d+) on node (\S+?)(?:,| managing GPUs? ([\d,]+))")
JOB_MISSING = re.compile(r"Missing communicator data from (\d+) job process")
DEAD = re.compile(r"(\d+) job process(?:es)? (?:is|are) considered dead")
RANKS_MISSING = re.compile(r"Missing communicator data from (\d+) ranks?\b")
MISSING_LIST = re.compile(r"The missing ranks?: ([\d,\s]+)")
OPERATION = re.compile(r"have different (\S+) operation counts")
STATUS = re.compile(r"Communicator ranks have different status")
ERRORS = re.compile(r"(Initialization|Asynchronous) errors? on (\d+) rank")
GROUP_COUNT = re.compile(r"(\d+) ranks have launched up to operation (\d+)")
GROUP_NONE = re.compile(r"(\d+) ranks have not launched any operations")
GROUP_STATUS = re.compile(r"(\d+) ranks have status ([A-Z]+)")
GROUP_ERROR = re.compile(r"(\d+) ranks reported (.+?)\s*$")
RANK = re.compile(
    r"\bRank (?P<rank>\d{1,7})\b(?P<what>.*?) -- (?:GPU (?P<cuda>\d+)(?: \(NVML (?P<nvml>\d+)\))? "
    r"managed by process (?P<pid>\d+) on node (?P<host>\S+)|\[process information not found\])"
)
ONE_COUNT = re.compile(r"has launched up to operation (\d+)")
ONE_NONE = re.compile(r"has not launched any operations")
ONE_STATUS = re.compile(r"has status ([A-Z]+)")
ONE_ERROR = re.compile(r"reported (.+)")
TIMEOUTS = re.compile(r"Encountered (\d+) communication timeout")


def rank_value(what: str) -> int | str | None:
    """What the line of a single rank says about it; None if it only lists the rank."""
    if (found := ONE_COUNT.search(what)) is not None:
        return int(found[1])
    if ONE_NONE.search(what) is not None:
        return 0
    if (found := ONE_STATUS.search(what)) is not None:
        return status_of(found[1])
    found = ONE_ERROR.search(what)
    return found[1].strip() if found is not None else None


def status_of(text: str) -> State:
    """A rank's status from its word in the text; empty if the word is unknown."""
    known: dict[str, State] = {
        "INIT": "INIT",
        "RUNNING": "RUNNING",
        "FINALIZE": "FINALIZE",
        "ABORT": "ABORT",
        "NOCOMM": "NOCOMM",
        "UNKNOWN": "NOCOMM",  # 2.24 and 2.25
    }
    return known.get(text, "")
