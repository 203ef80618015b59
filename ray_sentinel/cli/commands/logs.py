"""Find and show the right log files of a job: by rank, node, actor class, pid and IP address.

PATH is a Ray temp dir or session (running or copied), a job's folder, or a file. The default is the
Ray session of this machine; --node reads another node's logs through Ray. Without --tail, --errors
or --follow the files are listed. Errors are marked "!" and warnings "~"; lines that Ray
deduplicated show their count. Secrets are masked.

Exit codes: 0 something was found; 1 nothing matches; 2 wrong usage; 3 there is no Ray session on
this machine, or the node cannot be reached.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable, Sequence
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from ray_sentinel.cli.options import add_session, count
from ray_sentinel.cli.output import clean, console, print_json, print_json_line, text_printer
from ray_sentinel.errors import UnreachableError, UsageError
from ray_sentinel.report.words import second

if TYPE_CHECKING:  # 60 ms, which `ray-sentinel --help` need not wait for
    from ray_sentinel.logs.find import FoundLog
    from ray_sentinel.logs.follow import Shown
    from ray_sentinel.logs.select import LineFilter

WIDEST = 4_096
"""Characters of the longest line in the list of files."""
TAIL = 50
"""Lines that are printed of each file unless another number is asked for."""
_MARKS = {"error": ("!", "red"), "warning": ("~", "yellow")}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    parser.add_argument(
        "path",
        nargs="?",
        type=Path,
        metavar="PATH",
        help="logs to read (default: this machine's Ray session)",
    )
    parser.add_argument("--rank", type=int, metavar="N", help="only logs of this rank")
    parser.add_argument(
        "--node",
        default="",
        metavar="NODE",
        help="only logs of this node: its host name, its address, or the beginning of its id",
    )
    add_session(parser)
    parser.add_argument(
        "--actor",
        default="",
        metavar="NAME",
        help="only logs of actors of this class, or with this part in their name",
    )
    parser.add_argument("--pid", type=int, metavar="PID", help="only logs of this process")
    parser.add_argument(
        "--ip",
        default="",
        metavar="IP",
        help="only logs of this address, as Ray prints it: (Actor pid=.., ip=..)",
    )
    parser.add_argument(
        "--kind",
        default="",
        metavar="KIND",
        help="only logs of this kind: worker, driver, raylet, gcs, monitor, kernel, nccl, rank or "
        "log",
    )
    parser.add_argument(
        "--tail",
        type=count,
        metavar="N",
        help=f"print the last N lines of each file (default with --errors or --follow: {TAIL})",
    )
    parser.add_argument(
        "--errors", action="store_true", help="print only lines that are marked as errors"
    )
    parser.add_argument(
        "--follow", "-f", action="store_true", help="keep printing new lines, until Ctrl-C"
    )
    parser.add_argument("--json", action="store_true", help="print JSON instead of text")


def run(args: argparse.Namespace) -> int:
    """List, show or follow."""
    from ray_sentinel.logs.find import find_logs, live_session
    from ray_sentinel.logs.select import LineFilter, choose, describe

    wanted = LineFilter(
        rank=args.rank, node=args.node, actor=args.actor, pid=args.pid, ip=args.ip, kind=args.kind
    )
    if args.path is None and args.node:
        return _of_node(args, wanted)
    root = args.path or live_session(args.temp_dir)
    return _show_files(choose(describe(find_logs(root)), wanted), wanted, args)


def _of_node(args: argparse.Namespace, wanted: LineFilter) -> int:
    """A node of the cluster: this one's files as they are, another one's through Ray."""
    from ray_sentinel.actors.node_logs import fetched
    from ray_sentinel.logs.find import find_logs, live_session
    from ray_sentinel.logs.select import choose, describe

    try:
        session = live_session(args.temp_dir)
    except UnreachableError:
        session = None  # a machine that is not one of the cluster's nodes
    anywhere = msgspec.structs.replace(wanted, node="")
    with fetched(session, args.node, args.address) as (folder, other):
        for problem in other.problems:
            sys.stderr.write(f"{clean(problem)}\n")
        if session is not None and any(node.here for node in other.nodes):
            return _show_files(choose(describe(find_logs(session)), anywhere), anywhere, args)
        if not any(node.files for node in other.nodes):
            raise UnreachableError(f"no log of node {args.node} could be read")
        if args.follow:
            raise UsageError(f"--follow reads this machine's own files: run it on {args.node}")
        return _show_files(choose(describe(find_logs(folder)), anywhere), anywhere, args)


def _show_files(files: Sequence[FoundLog], wanted: LineFilter, args: argparse.Namespace) -> int:
    from ray_sentinel.clock import SystemClock
    from ray_sentinel.logs.catalogue import load_catalogue
    from ray_sentinel.logs.follow import follow, last_lines

    if args.tail is None and not args.errors and not args.follow:
        _list(files, as_json=args.json)
        return 0 if files else 1
    catalogue = load_catalogue()
    last = TAIL if args.tail is None else args.tail
    lines = last_lines(files, wanted, catalogue, last, errors=args.errors)
    if args.follow:
        # A stream, which has no end: in JSON one document a line, at once.
        news = follow(files, wanted, catalogue, SystemClock(), errors=args.errors)
        if args.json:
            for line in chain(lines, news):
                print_json_line(line)
        else:
            _print(chain(lines, news))
        return 0
    if args.json:
        print_json(lines)
    else:
        _print(lines)
    return 0 if lines or (files and last == 0) else 1


def _list(files: Sequence[FoundLog], *, as_json: bool) -> None:
    rows = [
        {
            "file": item.file.label,
            "kind": item.file.kind,
            "rank": item.file.origin.rank,
            "node": item.file.origin.host or item.file.origin.ip,
            "pid": item.file.origin.pid,
            "actor": item.file.origin.actor,
            "bytes": item.file.size,
            "modified": item.file.modified,
        }
        for item in files
    ]
    if as_json:
        print_json(rows)
        return
    from rich.table import Table

    names = ("kind", "rank", "node", "pid", "actor", "bytes")
    table = Table(box=None, padding=(0, 2, 0, 0))
    for name in (*names, "modified (UTC)", "file"):
        table.add_column(name, justify="right" if name in ("rank", "pid", "bytes") else "left")
    for item, row in zip(files, rows, strict=True):
        cells = ["" if row[key] is None else clean(str(row[key])) for key in names]
        modified = item.file.modified
        table.add_row(*cells, second(modified) if modified else "", clean(str(row["file"])))
    # The file is last and in one piece, even if it is longer than the terminal is wide: with the
    # end cut off, the files of two workers are the same, and none can be copied.
    screen = console()
    screen.width = WIDEST
    screen.print(table, crop=False)


def _print(lines: Iterable[Shown]) -> None:
    say = text_printer()
    for shown in lines:
        sign, style = _MARKS.get(shown.line.mark, (" ", ""))
        times = f" [x{shown.line.repeated}]" if shown.line.repeated > 1 else ""
        who = _who(shown)
        say(f"{sign} {who}: {shown.line.text}{times}", style)


def _who(shown: Shown) -> str:
    origin = shown.line.origin
    parts = [shown.label]
    if origin.actor:
        parts.append(origin.actor)
    if origin.rank is not None:
        parts.append(f"rank {origin.rank}")
    if origin.pid is not None:
        parts.append(f"pid {origin.pid}")
    if origin.ip:
        parts.append(origin.ip)
    return " ".join(parts)
