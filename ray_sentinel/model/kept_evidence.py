"""What a verdict was made of, kept so that a later version can judge it anew."""

from __future__ import annotations

import msgspec


class KeptEvidence(msgspec.Struct, frozen=True, kw_only=True):
    """The evidence of one look, packed; small evidence is in the event, larger in a file."""

    data: bytes = b""
    """The packed evidence; in a log, empty where it is in a file or was left out."""
    file: str = ""
    """Name of its file, in the folder of the event log; empty where it is in ``data``."""
    left_out: str = ""
    """Why it is not kept; empty where it is."""
