"""Which versions of NCCL may be queried, and how. Querying is not harmless in all of them.

* 2.26: a query while communicators are made has crashed jobs.
* 2.27 and 2.28: RAS walks wrongly over communicators with missing ranks, and reads beyond its
  memory; fixed in 2.29.2. 2.28.7 brought JSON.
* 2.29: the text output has crashed on a communicator that was just being made; JSON uses other
  code.
"""

from __future__ import annotations

import msgspec

from ray_sentinel import regex as re

FIRST = (2, 24, 0)
JSON_SINCE = (2, 28, 7)
SAFE_SINCE = (2, 29, 2)

Version = tuple[int, int, int]


class Gate(msgspec.Struct, frozen=True):
    """Whether to query, and why (not)."""

    ask: bool
    reason: str
    json: bool = True
    """Ask for JSON; otherwise for text."""


def parse(text: str) -> Version | None:
    """``2.27.3+cuda12.9`` as numbers; None if it is not a version.

    >>> parse("2.27.3+cuda12.9")
    (2, 27, 3)
    """
    found = re.match(r"\s*(\d{1,3})\.(\d{1,3})(?:\.(\d{1,3}))?", text)
    if found is None:
        return None
    return int(found[1]), int(found[2]), int(found[3] or 0)


def gate(text: str, poll: str = "auto", library: str = "NCCL") -> Gate:
    """Whether a library of this version may be queried. ``poll``: "auto", "always" or "never".

    RCCL takes its RAS from NCCL and counts its versions alike.
    """
    version = parse(text)
    name = f"{library} {text}" if version else f"{library} of an unknown version"
    if poll == "never":
        return Gate(False, 'RAS is not asked: nccl_ras.poll is "never"')
    if version is not None and version < FIRST:
        return Gate(False, f"{name} has no RAS (it came with 2.24)")
    json = version is None or version >= JSON_SINCE
    if poll == "always":
        return Gate(True, f'{name} is asked because nccl_ras.poll is "always"', json)
    remedy = 'nccl_ras.poll = "always" asks all the same'
    if version is None:
        return Gate(False, f"{name} is not asked: some versions crash; {remedy}")
    if version < SAFE_SINCE:
        return Gate(
            False,
            f"{name} is not asked: before 2.29.2 a query can crash the job where ranks are missing "
            f"or communicators are being made; {remedy}",
        )
    return Gate(True, f"{name} can be asked", json)
