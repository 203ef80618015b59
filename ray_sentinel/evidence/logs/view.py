"""A log line as people read it: who, what, and whether it is trouble."""

from __future__ import annotations

import msgspec

from ray_sentinel.evidence.logs.catalogue import Catalogue
from ray_sentinel.evidence.logs.levels import is_quiet, level
from ray_sentinel.evidence.logs.lines import Origin, ScannedLine, parse_line
from ray_sentinel.evidence.logs.tracebacks import HEADER, parse_exception
from ray_sentinel.masking import mask


class ViewLine(msgspec.Struct, frozen=True, kw_only=True):
    """One line, masked and without escapes. ``mark`` is "error", "warning" or empty."""

    text: str
    origin: Origin
    mark: str = ""
    kind: str = ""
    """The failure class of the signature that the line shows, if any."""
    repeated: int = 1


def view_line(raw: str, catalogue: Catalogue, file_kind: str = "") -> ViewLine:
    """Judge one line by itself."""
    line = parse_line(raw)
    mark, kind = _judged(line, catalogue, file_kind)
    return ViewLine(
        text=mask(line.text), origin=line.origin, mark=mark, kind=kind, repeated=line.repeated
    )


def _judged(line: ScannedLine, catalogue: Catalogue, file_kind: str) -> tuple[str, str]:
    text = line.text
    found = catalogue.search(text, file_kind)
    if found is not None:
        signature = found.signature
        if signature.role in ("harmless", "note"):
            return "", ""
        if is_quiet(text) and signature.weight < 84:
            return "", ""
        return ("warning" if signature.severity == "warning" else "error"), signature.kind
    if catalogue.harmless(text, file_kind) is not None:
        return "", ""
    if HEADER in text or parse_exception(text) is not None or level(text) == "error":
        return "error", ""
    return ("warning", "") if level(text) == "warning" else ("", "")
