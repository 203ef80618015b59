"""What the self-contained pages have in common: no script, and nothing from outside unescaped."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape

from ray_sentinel.report.words import plain


def escaped(text: str) -> str:
    """Text from outside, for use in HTML and SVG."""
    return escape(plain(text))


def listing(title: str, lines: Sequence[str]) -> str:
    """A heading with a list below it; empty without lines. ``title`` is HTML, lines are text."""
    if not lines:
        return ""
    items = "".join(f"<li>{escaped(line)}</li>" for line in lines)
    return f"<h2>{title}</h2><ul>{items}</ul>"


def document(title: str, style: str, body: Iterable[str]) -> str:
    """The whole page. ``title`` is text, the parts of ``body`` are HTML."""
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width">'
        f"<title>{escaped(title)}</title><style>{style}</style></head>"
        f"<body>{''.join(body)}</body></html>\n"
    )
