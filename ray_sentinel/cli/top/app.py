"""The screen: a head, a line of panes, one pane, a line of keys."""

from __future__ import annotations

import asyncio
import time
from typing import ClassVar

from rich.text import Text
from textual import events, work
from textual.app import App, ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, VerticalScroll
from textual.screen import ModalScreen
from textual.widgets import ContentSwitcher, Input, Static

from ray_sentinel.bounded import in_background
from ray_sentinel.cli.open_incidents import is_open
from ray_sentinel.cli.status_view import is_troubled
from ray_sentinel.cli.top import details, pulse, stack
from ray_sentinel.cli.top.asking import SeenStatus, StatusAsker, failures
from ray_sentinel.cli.top.gpus import GpuAsker
from ray_sentinel.cli.top.head import head, seen_ago
from ray_sentinel.cli.top.looks import for_terminal, plain, shortened
from ray_sentinel.cli.top.map import MapLine, legend, map_lines
from ray_sentinel.cli.top.panes import PANES, GpuLine, gpu_lines, matching
from ray_sentinel.cli.top.process_lines import (
    ProcessLine,
    accused_pids,
    process_lines,
    worst_first,
)
from ray_sentinel.cli.top.rows import RowsPane
from ray_sentinel.model.incident import Incident
from ray_sentinel.model.status import NodeStatus

LOOK_EVERY = 0.25
"""Seconds between two looks at what has been received; the screen is drawn only if something is
new."""

HELP = (
    """\
1 … 6, tab, ← →    panes: map, ranks, nodes, GPUs, incidents, pulse
↑ ↓ k j            one row up, down
PgUp PgDn space    a screen up, down
g G Home End       first row, last row
enter              details: stacks, evidence; on the map, the node's ranks
s                  the stack of the chosen rank or process, taken now
/                  show only what contains a word; Esc shows all again
r                  ask now
q Ctrl-C           quit; in details, q and Esc go back

Signs   ■ running  □ waiting  · idle  ? silent  x exited  X stopped
        G holds the GIL  D blocked in the kernel  ~ another state
A process that an open incident names is on red, and has a "!" in the list.
Trouble comes first in every pane.

Pulse   each column is as high as its longest step or call, yellow where cut off
        """
    + pulse.LEGEND
)


class DetailsScreen(ModalScreen[None]):
    """One thing in full, over the rest."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,q,enter,question_mark", "dismiss", show=False),
        Binding("down,j", "by(1)", show=False),
        Binding("up,k", "by(-1)", show=False),
        Binding("space", "by(20)", show=False),
        Binding("s", "app.stack", show=False),
    ]

    def __init__(self, text: Text, about: ProcessLine | None = None) -> None:
        """``about``: the process that it is about, whose stack can be asked for."""
        super().__init__()
        self._text, self.about = for_terminal(text), about

    def compose(self) -> ComposeResult:
        """The text, and how to get back."""
        with VerticalScroll(id="details"):
            yield Static(self._text, id="told", markup=False)
        more = "  s its stack now" if self.about is not None else ""
        yield Static(f"esc back  ↑↓ scroll{more}", id="keys", markup=False)

    def set_text(self, text: Text) -> None:
        """Show another text, from its beginning."""
        self._text = for_terminal(text)
        self._draw()

    def on_mount(self) -> None:
        """Show the text that was set before the screen existed."""
        self._draw()

    def _draw(self) -> None:
        for told in self.query("#told").results(Static):
            told.update(self._text)
        for scrolled in self.query("#details").results(VerticalScroll):
            scrolled.scroll_home(animate=False)

    def action_by(self, lines: int) -> None:
        """Scroll."""
        self.query_one("#details", VerticalScroll).scroll_relative(y=lines, animate=False)


class TopApp(App[None]):
    """``ray-sentinel top``. It only draws what the askers have; nothing here waits for a node."""

    ENABLE_COMMAND_PALETTE = False
    CSS = """
    Screen { layout: vertical; }
    #head { height: auto; max-height: 50%; padding: 0 1; }
    #bar { height: 1; background: $surface; }
    #tabs { width: 1fr; text-wrap: nowrap; text-overflow: ellipsis; }
    #age { width: auto; padding: 0 1; }
    ContentSwitcher { height: 1fr; }
    RowsPane { height: 1fr; }
    #legend, #keys { height: 1; padding: 0 1; }
    #keys { background: $surface; }
    #filter { height: 1; border: none; display: none; padding: 0 1; }
    #filter.shown { display: block; }
    DetailsScreen { background: $background; }
    #details { height: 1fr; padding: 0 1; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("q,ctrl+c", "quit", show=False, priority=False),
        Binding("question_mark,h", "help", show=False),
        Binding("slash", "filter", show=False),
        Binding("escape", "all", show=False),
        Binding("r", "ask", show=False),
        Binding("s", "stack", show=False),
        Binding("tab,right,l", "turn(1)", show=False, priority=False),
        Binding("shift+tab,left", "turn(-1)", show=False, priority=False),
        *(Binding(str(n), f"pane({n - 1})", show=False) for n in range(1, len(PANES) + 1)),
    ]

    def __init__(
        self,
        asker: StatusAsker,
        gpus: GpuAsker,
        take_stack: stack.TakeStack | None = None,
    ) -> None:
        """``take_stack``: None where stacks cannot be taken from here."""
        super().__init__()
        self._asker, self._gpus, self._take = asker, gpus, take_stack
        self._drawn: SeenStatus | None = None
        self._lines: list[ProcessLine] = []
        self._wanted = ""
        self._second = -1

    def compose(self) -> ComposeResult:
        """All panes are there at once; the switcher shows one."""
        yield Static(id="head", markup=False)
        with Horizontal(id="bar"):
            yield Static(id="tabs", markup=False)
            yield Static(id="age", markup=False)
        with ContentSwitcher(initial="map"):
            for make in PANES.values():
                yield make()
        yield Static(id="legend", markup=False)
        yield Input(placeholder="only what contains …", id="filter")
        yield Static(id="keys", markup=False)

    def on_mount(self) -> None:
        """Begin to look."""
        self.action_pane(0)
        self.redraw()
        self.set_interval(LOOK_EVERY, self.redraw)

    @property
    def pane(self) -> RowsPane:
        """The one that is shown."""
        return self.query_one(f"#{self._switcher.current}", RowsPane)

    @property
    def _switcher(self) -> ContentSwitcher:
        return self.screen_stack[0].query_one(ContentSwitcher)

    def redraw(self) -> None:
        """Draw what is new: an answer, or a second that has passed."""
        if not self.is_running:
            return  # a timer may fire while the panes are taken down
        seen, second = self._asker.seen, int(time.monotonic())
        new, passed = seen is not self._drawn, second != self._second
        if new:
            if self._drawn is None or seen.status is not self._drawn.status:
                accused = accused_pids(seen.incidents)
                self._lines = process_lines(seen.status, accused) if seen.status else []
            self._drawn = seen
        if new or (passed and self.pane.id == "gpus"):
            self._draw_pane()
        if new or passed:
            self._second = second
            self._draw_head()

    def _draw_head(self) -> None:
        rows = max(self.size.height // 2 - 2, 4)
        seen, now = self._asker.seen, time.monotonic()
        text = head(seen, now, min(rows, 12), max(self.size.width - 2, 1))
        self.screen_stack[0].query_one("#head", Static).update(for_terminal(text))
        self.screen_stack[0].query_one("#age", Static).update(Text(seen_ago(seen, now), "dim"))

    def _draw_pane(self) -> None:
        """Only the pane in sight; the others are drawn when they come into sight."""
        seen, wanted, rows = self._asker.seen, self._wanted, self.pane
        shown = [line for line in self._lines if not wanted or line.matches(wanted)]
        nodes = seen.status.nodes if seen.status is not None else ()
        self._gpus.want(())
        if rows.id == "map":
            rows.show(map_lines(shown))
        elif rows.id == "ranks":
            rows.show(worst_first(shown))
        elif rows.id == "nodes":
            lost = seen.status.unwatched if seen.status is not None else ()
            known = [*lost, *sorted(nodes, key=lambda one: not is_troubled(one))]
            rows.show(matching(known, wanted, "host", "address", "reason"))
        elif rows.id == "gpus":
            found = matching(nodes, wanted, "host", "address")
            rows.show(gpu_lines(found, self._gpus.told, time.monotonic()))
            self.call_after_refresh(self._want_gpus)
        elif rows.id == "pulse":
            jobs = [job for job in seen.status.jobs if not job.ended] if seen.status else []
            columns = max(self.size.width * 2 // 5, 10)
            lanes = pulse.pulse_lines(seen.pulse, jobs, seen.incidents, columns)
            rows.show([one for one in lanes if wanted in one.pulse.job.lower()])
        else:
            found = matching(seen.incidents, wanted, "id", "job", "kind", "state", "summary")
            rows.show(sorted(found, key=lambda one: (not is_open(one), -one.suspected_at)))
        self._draw_lines(shown)

    def _want_gpus(self) -> None:
        """Ask the nodes in sight; which these are is known once the pane has its size."""
        if self.pane.id == "gpus":
            self._gpus.want([line.node.metrics_url for line in self.pane.in_sight])

    def _draw_lines(self, shown: list[ProcessLine]) -> None:
        base = self.screen_stack[0]
        tabs = Text(no_wrap=True, overflow="ellipsis")
        for number, name in enumerate(PANES, 1):
            here = name.lower() == self.pane.id
            told = f" {number} {name} " if not here else f"[{number} {name}]"
            tabs.append(told, "bold reverse" if here else "")
        base.query_one("#tabs", Static).update(for_terminal(tabs))
        on_pulse = self.pane.id == "pulse"
        signs = Text(pulse.LEGEND, style="dim") if on_pulse else legend(shown)
        room = max(self.size.width - 2, 1)
        base.query_one("#legend", Static).update(for_terminal(shortened(signs, room)))
        keys = Text(no_wrap=True)
        if self._wanted:
            found = f"/{self._wanted}  {len(self.pane.items)} rows"
            keys.append_text(plain(found, "yellow", 40)).append("  esc all  ")
        keys.append(
            "q quit  ? keys  / filter  enter details  s stack  1-6 tab panes  ↑↓ move", "dim"
        )
        base.query_one("#keys", Static).update(for_terminal(shortened(keys, room)))

    def on_resize(self, _: events.Resize) -> None:
        """Draw the head again: another size has room for another one."""
        self._second = -1

    def action_pane(self, number: int) -> None:
        """Show a pane."""
        self._switcher.current = [*PANES][number].lower()
        self._to_pane()
        self._draw_pane()

    def action_turn(self, by: int) -> None:
        """The next pane, or the one before."""
        names = [name.lower() for name in PANES]
        self.action_pane((names.index(self.pane.id or "") + by) % len(names))

    def action_help(self) -> None:
        """Show the keys."""
        self.push_screen(DetailsScreen(Text(HELP)))

    def action_ask(self) -> None:
        """Do not wait for the next look."""
        self._asker.hurry()

    def action_filter(self) -> None:
        """Show the line in which a word can be written."""
        line = self.query_one("#filter", Input)
        line.add_class("shown")
        line.focus()

    def action_all(self) -> None:
        """Remove the filter."""
        self._only("")

    def on_input_changed(self, event: Input.Changed) -> None:
        """Filter while it is written."""
        self._wanted = event.value.strip().lower()
        self._draw_pane()

    def on_input_submitted(self) -> None:
        """Keep the filter, and give the keys back to the pane."""
        self.query_one("#filter", Input).remove_class("shown")
        self._to_pane()

    def _to_pane(self) -> None:
        """The pane gets the keys at once: with ``focus()`` one typed fast goes to the previous
        pane."""
        self.screen_stack[0].set_focus(self.pane)

    def _only(self, wanted: str) -> None:
        line = self.query_one("#filter", Input)
        line.remove_class("shown")
        line.value = wanted
        self._wanted = wanted.lower()
        self._to_pane()
        self._draw_pane()

    def on_rows_pane_chosen(self, event: RowsPane.Chosen) -> None:
        """Details of what was chosen; on the map, the ranks of the node."""
        item, seen = event.item, self._asker.seen
        if isinstance(item, MapLine):
            self.action_pane(1)
            self._only(item.host)
        elif isinstance(item, ProcessLine):
            self._open_details(details.joined(details.of_process(item, seen.incidents)), item)
        elif isinstance(item, pulse.PulseLine):
            self._open_details(details.joined(pulse.lane_details(item)))
        elif isinstance(item, Incident):
            self._open_details(details.joined(details.of_incident(item)))
        elif isinstance(item, NodeStatus | GpuLine):
            node = item if isinstance(item, NodeStatus) else item.node
            self._open_details(details.joined(details.of_node(node, self._lines)))

    def action_stack(self) -> None:
        """Take the stack of the process that is chosen, or that is shown in full."""
        shown = self.screen if isinstance(self.screen, DetailsScreen) else None
        about = self.pane.chosen if shown is None else shown.about
        if isinstance(about, ProcessLine):
            shown = shown or self._open_details(Text("taking its stack …", style="dim"), about)
            self._fetch_stack(about, shown)

    @work(exclusive=True, exit_on_error=False)
    async def _fetch_stack(self, about: ProcessLine, screen: DetailsScreen) -> None:
        """Show the stack of a process, once an agent has taken it, which may take seconds."""
        status = self._asker.seen.status
        nodes = status.nodes if status is not None else ()
        ids = [node.id for node in nodes if node.host == about.host]
        try:
            # On no thread of Textual's workers: it would keep a person who quits waiting.
            taken = in_background(
                lambda: details.joined(stack.stack_lines(about, ids, self._take)), "stack"
            )
            text = await asyncio.wrap_future(taken)
        except failures() as error:
            text = plain(f"its stack could not be taken: {error}", "yellow")
        screen.set_text(text)

    def _open_details(self, text: Text, about: ProcessLine | None = None) -> DetailsScreen:
        screen = DetailsScreen(text, about)
        self.push_screen(screen)
        return screen
