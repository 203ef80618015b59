"""What a client accepts, by its headers (RFC 9110, section 12.5)."""

from __future__ import annotations

from ray_sentinel import regex as re


def wants_openmetrics(accept: str) -> bool:
    """Whether an Accept header prefers OpenMetrics 1.0 to the text format."""
    openmetrics, text = 0.0, 0.0
    for part in accept.split(","):
        kind, *parameters = (piece.strip().lower() for piece in part.split(";"))
        values = dict(piece.partition("=")[::2] for piece in parameters)
        weight = _weight(values.get("q", "1"))
        if kind == "application/openmetrics-text":
            if values.get("version", "1.0.0") == "1.0.0":
                openmetrics = max(openmetrics, weight)
        elif kind in ("text/plain", "text/*", "*/*"):
            text = max(text, weight)
    return openmetrics > 0 and openmetrics >= text


def accepts_gzip(header: str) -> bool:
    """Whether an Accept-Encoding header allows gzip."""
    for part in header.lower().split(","):
        coding, *parameters = (piece.strip() for piece in part.split(";"))
        if coding in ("gzip", "x-gzip"):
            quality = [piece[2:] for piece in parameters if piece.startswith("q=")]
            return _weight(quality[0] if quality else "1") > 0
    return False


def _weight(text: str) -> float:
    return float(text) if re.fullmatch(r"[01](\.\d{0,3})?", text) else 1.0
