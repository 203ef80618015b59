"""Show jobs, ranks and nodes as they are now, and the verdict in one sentence.

Exit codes: 0 all is well; 1 a job hangs or stalls; 2 wrong usage; 3 no coordinator can be reached.
"""

from __future__ import annotations

import argparse
import time

from rich.live import Live

from ray_sentinel.cli.open_incidents import FOUND, OpenIncidents
from ray_sentinel.cli.options import add_common, add_url, positive
from ray_sentinel.cli.output import console, print_json, print_json_line, text_printer
from ray_sentinel.cli.reach import Asked, asked
from ray_sentinel.cli.status_view import headline, status_view
from ray_sentinel.errors import UnreachableError, UsageError
from ray_sentinel.model.incident import Incident
from ray_sentinel.model.status import Status

SHORTEST = 0.1
"""Shortest interval in seconds between two looks: a shorter one would only load the coordinator."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The command's options."""
    add_common(parser)
    add_url(parser)
    parser.add_argument("--watch", action="store_true", help="keep showing it, until Ctrl-C")
    parser.add_argument(
        "--link", action="store_true", help="print only the page's link, which contains its token"
    )
    parser.add_argument(
        "--interval",
        type=positive,
        default=1.0,
        metavar="SECONDS",
        help="with --watch: seconds between two looks (default: %(default)g; at least "
        f"{SHORTEST:g})",
    )


def run(args: argparse.Namespace) -> int:
    """Show the status once, or over and over."""
    if args.link and (args.url or args.watch):
        raise UsageError("--link asks the cluster, once: leave --url and --watch out")
    with asked(args) as found:
        if args.watch:
            return _watch(found, args)
        link = "" if args.json and not args.link else found.page_link()
        if args.link:
            return _print_link(link, args)
        status = found.ask("status", Status)
        incidents = () if args.json else OpenIncidents(found).of(status)
    if args.json:
        print_json(status)
    else:
        _print(status, link, incidents)
    return 1 if status.state in FOUND else 0


def _print(status: Status, link: str, incidents: tuple[Incident, ...]) -> None:
    """The status; and what is wrong once more where a terminal has scrolled it out of sight."""
    screen, view = console(), status_view(status, link, incidents)
    screen.print(view, crop=False)
    if screen.is_terminal and status.state in FOUND:
        lines = screen.render_lines(view, pad=False)
        if len(lines) >= screen.height:
            screen.print(headline(status, incidents), crop=False)


def _print_link(link: str, args: argparse.Namespace) -> int:
    if not link:
        raise UnreachableError("the coordinator serves no page: `ray-sentinel status` says why")
    if args.json:
        print_json({"link": link})
    else:
        text_printer()(link)
    return 0


def _watch(found: Asked, args: argparse.Namespace) -> int:
    if args.json:
        while True:
            print_json_line(found.ask("status", Status))
            time.sleep(max(args.interval, SHORTEST))
    if link := found.page_link():
        # Once, and not in what is drawn over and over: there a long line is cut.
        text_printer()(f"page: {link}", "dim")
    opened = OpenIncidents(found)
    with Live(console=console(), auto_refresh=False, screen=False) as live:
        while True:
            status = found.ask("status", Status)
            live.update(status_view(status, incidents=opened.of(status)), refresh=True)
            time.sleep(max(args.interval, SHORTEST))
