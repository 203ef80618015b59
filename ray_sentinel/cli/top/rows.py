"""A list of any length of which only what is in sight is drawn, with a cursor."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, ClassVar

from rich.text import Text
from textual import events
from textual.binding import Binding, BindingType
from textual.message import Message
from textual.widget import Widget

from ray_sentinel.cli.top.looks import for_terminal, shortened

GAP = 2
LEAST = 4
"""Cells to which a column's width may always grow, however narrow the terminal is."""

AT_CURSOR = "bold on #1f3d5a"

Cells = Sequence[Text]


class RowsPane(Widget, can_focus=True):
    """Rows of cells under one line of titles. The first column holds the cursor's mark, so that it
    is seen without colour."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("up,k", "move(-1)", show=False),
        Binding("down,j", "move(1)", show=False),
        Binding("pageup", "page(-1)", show=False),
        Binding("pagedown,space", "page(1)", show=False),
        Binding("home,g", "move(-1000000000)", show=False),
        Binding("end,G", "move(1000000000)", show=False),
        Binding("enter", "choose", show=False),
    ]

    class Chosen(Message):
        """Enter was pressed on a row."""

        def __init__(self, item: Any) -> None:
            super().__init__()
            self.item = item

    def __init__(
        self,
        titles: Sequence[str],
        cells: Callable[[Any], Cells],
        key: Callable[[Any], object],
        *,
        empty: str,
        id: str,
        widest: int = 3,
    ) -> None:
        """``cells`` draws one item, ``key`` knows it again at the next look. ``widest``: no column
        but the last takes more than this part of the screen's width."""
        super().__init__(id=id)
        self._titles, self._cells, self._key, self._empty = titles, cells, key, empty
        self._items: Sequence[Any] = ()
        self._cursor = self._top = 0
        self._widest = widest
        self._widths = [len(title) for title in titles]

    @property
    def items(self) -> Sequence[Any]:
        """All rows, those out of sight too."""
        return self._items

    @property
    def chosen(self) -> Any | None:
        """The item under the cursor; None if there is none."""
        return self._items[self._cursor] if self._items else None

    @property
    def in_sight(self) -> Sequence[Any]:
        """What is drawn now."""
        return self._items[self._top : self._top + self._room]

    def show(self, items: Sequence[Any]) -> None:
        """Draw others; the cursor stays on the item that it was on, where that is still there and
        the cursor was moved."""
        before = self._key(self.chosen) if self._items and self._cursor else None
        self._items = items
        if before is not None:
            self._cursor = next(
                (at for at, item in enumerate(items) if self._key(item) == before), self._cursor
            )
        self._settle()

    @property
    def _room(self) -> int:
        return max(self.size.height - 1, 1)

    def _settle(self) -> None:
        self._cursor = max(0, min(self._cursor, len(self._items) - 1))
        last = max(0, len(self._items) - self._room)
        self._top = max(self._cursor - self._room + 1, min(self._top, self._cursor, last), 0)
        self.refresh()

    def action_move(self, by: int) -> None:
        """Move the cursor down by ``by`` rows."""
        self._cursor += by
        self._settle()

    def action_page(self, by: int) -> None:
        """Move the cursor down by ``by`` screens."""
        self.action_move(by * self._room)

    def action_choose(self) -> None:
        """Tell the app which row was chosen."""
        if self._items:
            self.post_message(self.Chosen(self.chosen))

    def on_click(self, event: events.Click) -> None:
        """Move the cursor there; a second click chooses."""
        if 0 < event.y <= len(self.in_sight):
            self._cursor = self._top + event.y - 1
            self._settle()
            if event.chain > 1:
                self.action_choose()

    def on_mouse_scroll_down(self) -> None:
        """Move the cursor down by three rows."""
        self.action_move(3)

    def on_mouse_scroll_up(self) -> None:
        """Move the cursor up by three rows."""
        self.action_move(-3)

    def on_resize(self) -> None:
        """Keep the cursor in sight."""
        self._settle()

    def render(self) -> Text:
        """The titles and what is in sight."""
        if not self._items:
            return Text(self._empty, style="dim")
        drawn = [self._cells(item) for item in self.in_sight]
        widths = self._measured(drawn)
        lines = [self._line([Text(t, style="bold dim") for t in self._titles], widths, " ")]
        for number, cells in enumerate(drawn, self._top):
            at_cursor = number == self._cursor
            line = self._line(cells, widths, "›" if at_cursor else " ")
            if at_cursor and self.has_focus:
                line.stylize_before(AT_CURSOR)
            lines.append(line)
        return for_terminal(Text("\n", no_wrap=True).join(lines))

    def _measured(self, drawn: list[Cells]) -> list[int]:
        """Widths never shrink, or columns would jump while one scrolls."""
        found = [
            max(before, *(cells[column].cell_len for cells in drawn))
            for column, before in enumerate(self._widths)
        ]
        most = max(self.size.width // self._widest, LEAST)
        self._widths = [min(width, most) for width in found]
        return self._widths

    def _line(self, cells: Cells, widths: list[int], mark: str) -> Text:
        left = self.size.width - 2
        line = Text(f"{mark} ", no_wrap=True)
        for number, (cell, width) in enumerate(zip(cells, widths, strict=True)):
            last = number == len(cells) - 1
            room = max(left, 0) if last else min(width, max(left, 0))
            part = shortened(cell, room).copy()
            part.truncate(room, pad=True)
            line.append_text(part)
            if not last:
                gap = min(GAP, max(left - room, 0))
                line.append(" " * gap)
                left -= room + gap
        return line
