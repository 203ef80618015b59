"""The rank that a reader of the page has selected."""

from __future__ import annotations

import msgspec


class RankAsked(msgspec.Struct, frozen=True, kw_only=True):
    """One rank of one attempt of a job."""

    job: str
    attempt: int
    rank: int
    place: str = ""
    """"host pid" of its process, which tells it from others of its number; "" for the newest."""
