"""Messages of a serving engine: started, working, idle, shut down.

A server makes no steps: these lines are its progress and its end.
"""

from __future__ import annotations

from collections.abc import Sequence

from ray_sentinel.evidence.logs.records import FileFacts, Hit

ENGINE_UP = frozenset({"engine-works", "engine-at-rest", "engine-ready"})
"""Notes which show that a serving engine answers requests, that it has none, or that it has
started."""
_STOPPED = "engine-stopped"
_NEAR_SECONDS = 120.0
_NEAR_BYTES = 4096
"""Most bytes between an engine's last word and the end of its file for it to count as serving to
the end, where that word has no time."""


def last_served(files: Sequence[FileFacts], *, at_rest: bool = True) -> Hit | None:
    """The last line that shows an engine at work or, with ``at_rest``, ready for work."""
    wanted = ENGINE_UP if at_rest else {"engine-works"}
    return _last([hit for facts in files for hit in facts.hits if hit.signature.id in wanted])


def served_to_end(files: Sequence[FileFacts], end: float | None) -> Hit | None:
    """The last such line, if it is at the end of the logs."""
    hit = last_served(files)
    if hit is None:
        return None
    if hit.time is not None and end is not None:
        return hit if end - hit.time <= _NEAR_SECONDS else None
    return hit if files[hit.file].last_offset - hit.offset <= _NEAR_BYTES else None


def shut_down(files: Sequence[FileFacts]) -> Hit | None:
    """The server's message that it shut down cleanly, if no engine served afterwards."""
    stopped = [hit for facts in files for hit in facts.hits if hit.signature.id == _STOPPED]
    told, served = _last(stopped), last_served(files)
    if told is None or served is None:
        return None
    return told if _place(told) > _place(served) else None


def _last(hits: Sequence[Hit]) -> Hit | None:
    return max(hits, key=_place, default=None)


def _place(hit: Hit) -> tuple[float, int, int]:
    return hit.time or 0.0, hit.file, hit.offset
