"""``ray-sentinel top`` drawn by Textual without a terminal, from what a real page serves."""

from __future__ import annotations

import asyncio
import html
import re
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, TypeVar

from ray_sentinel.cli.reach import Asked
from ray_sentinel.cli.remote import RemoteCoordinator
from ray_sentinel.cli.top.app import TopApp
from ray_sentinel.cli.top.asking import StatusAsker
from ray_sentinel.cli.top.gpus import GpuAsker
from ray_sentinel.cli.top.stack import TakeStack
from ray_sentinel.model.incident import Incident
from ray_sentinel.model.last_hour import PulseReport
from ray_sentinel.model.status import Status
from ray_sentinel.web.page import Page
from ray_sentinel.web.routes import PageSource

if TYPE_CHECKING:
    from textual.pilot import Pilot

T = TypeVar("T")

SMALL = (80, 24)
CELL = 12.2
"""Width of a character in Rich's pictures."""
PIECE = re.compile(r'<text class="[^"]*-r\d+" x="([\d.]+)" y="([\d.]+)"[^>]*>([^<]*)</text>')


class TopScreen:
    """The screen, and a hand on its keys."""

    def __init__(self, app: TopApp, pilot: Pilot[None], asker: StatusAsker) -> None:
        self.app, self.pilot, self.asker = app, pilot, asker

    async def press(self, *keys: str) -> str:
        """What is shown after these keys."""
        await self.pilot.press(*keys)
        return await self.text()

    async def look(self) -> str:
        """What is shown after one more question to the coordinator."""
        await asyncio.to_thread(self.asker.ask_once)
        self.app.redraw()
        return await self.text()

    async def text(self) -> str:
        """All lines, as they stand on the terminal."""
        await self.pilot.pause()
        return text_of(self.app.export_screenshot())


def text_of(picture: str) -> str:
    """The lines in one of Textual's pictures."""
    lines: dict[float, str] = {}
    for x, y, text in PIECE.findall(picture):
        before = lines.get(float(y), "")
        column = round(float(x) / CELL)
        lines[float(y)] = before.ljust(column) + html.unescape(text).replace("\xa0", " ")
    return "\n".join(lines[y].rstrip() for y in sorted(lines))


def drawn(
    found: Asked,
    see: Callable[[TopScreen], Awaitable[T]],
    *,
    size: tuple[int, int] = SMALL,
    gpus: GpuAsker | None = None,
    take_stack: TakeStack | None = None,
) -> T:
    """What ``see`` makes of the screen, once it shows a first answer."""
    asker = StatusAsker(found)

    async def play() -> T:
        app = TopApp(asker, gpus or GpuAsker(), take_stack=take_stack)
        async with app.run_test(size=size) as pilot:
            screen = TopScreen(app, pilot, asker)
            await screen.look()
            return await see(screen)

    return asyncio.run(play())


@contextmanager
def served_page(
    status: Callable[[], Status],
    incidents: Callable[[], tuple[Incident, ...]] = tuple,
    pulse: Callable[[], PulseReport] | None = None,
) -> Iterator[tuple[RemoteCoordinator, Page]]:
    """A page that answers so, and one who asks it."""
    page = Page(PageSource(status, incidents, pulse=pulse), port=0)
    try:
        yield RemoteCoordinator(page.link), page
    finally:
        page.close()
