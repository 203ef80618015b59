"""Records that a notebook shows as pages.

Records do not depend on pages: the module that makes them (``report.notebook``) registers here how.
Until it is loaded, a notebook shows the record's fields, as any interpreter does.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

AsText = Callable[[Any], str]

html_of: dict[type, AsText] = {}
markdown_of: dict[type, AsText] = {}


class NotebookRecord:
    """Shown by Jupyter as HTML, or as Markdown where HTML is not shown."""

    __slots__ = ()

    def _repr_html_(self) -> str | None:
        shown = html_of.get(type(self))
        return shown(self) if shown is not None else None

    def _repr_markdown_(self) -> str | None:
        shown = markdown_of.get(type(self))
        return shown(self) if shown is not None else None
