"""Find out from a job's logs what happened: class of failure, first cause, culprit, next steps.

PATH is a log file, a job's folder, a Ray temp dir or session, or a collection of logs with one
folder for each node. Compressed and rotated logs are read too. --live reads the Ray session of this
machine and, through Ray's log API, the logs of the other nodes; logs that could not be read are
listed.

Exit codes: 0 the job is running or has finished; 1 something went wrong; 2 wrong usage; 3 there is
no Ray session on this machine.
"""

from __future__ import annotations

import argparse
import contextlib
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from ray_sentinel.cli.options import add_session
from ray_sentinel.cli.output import clean, print_json, write_report
from ray_sentinel.errors import UsageError

WELL = frozenset({"completed", "running"})
"""Kinds of answers with which nothing went wrong."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    parser.add_argument("path", nargs="?", type=Path, metavar="PATH", help="logs to read")
    parser.add_argument(
        "--live",
        action="store_true",
        help="read this machine's Ray session and the other nodes' logs instead of PATH",
    )
    add_session(parser)
    parser.add_argument(
        "--this-node", action="store_true", help="with --live: leave out the other nodes' logs"
    )
    parser.add_argument(
        "--catalogue",
        action="append",
        type=Path,
        default=[],
        metavar="FILE",
        help="file with further signatures, in TOML (repeatable)",
    )
    parser.add_argument(
        "--checkpoints", type=Path, metavar="DIR", help="folder of the job's checkpoints"
    )
    parser.add_argument(
        "--report", metavar="FILE", type=Path, help="also write the report to FILE, as HTML"
    )
    parser.add_argument("--json", action="store_true", help="print JSON instead of text")


def run(args: argparse.Namespace) -> int:
    """Read, answer, print."""
    from ray_sentinel.actors.node_logs import fetched
    from ray_sentinel.cli.named_paths import is_folder
    from ray_sentinel.cli.triage_text import print_triage
    from ray_sentinel.logs.catalogue import load_catalogue
    from ray_sentinel.logs.find import live_session
    from ray_sentinel.logs.triage import triage_path

    if args.live == (args.path is not None):
        raise UsageError("give either PATH or --live")
    root = live_session(args.temp_dir) if args.live else args.path.expanduser()
    is_folder(str(root))  # or says what it is instead
    catalogues = _own_catalogues(args.catalogue, root)
    with contextlib.ExitStack() as until_read:
        beside, unread = None, []
        if args.live and not args.this_node:
            folder, other = until_read.enter_context(fetched(root, address=args.address))
            beside, unread = folder if any(n.files for n in other.nodes) else None, other.problems
        progress = until_read.enter_context(reading_bar())
        answer = triage_path(
            root,
            load_catalogue(catalogues),
            live=args.live,
            checkpoints=args.checkpoints,
            progress=progress,
            catalogues=catalogues,
            helpers=None,
            beside=beside,
            unread=unread,
        )
    if args.report:
        from ray_sentinel.report.html import triage_html

        write_report(args.report, triage_html(answer))
    if args.json:
        print_json(answer)
    else:
        print_triage(answer)
    return 0 if answer.kind in WELL else 1


def _own_catalogues(files: list[Path], root: Path) -> list[Path]:
    """The user's signature files: in ``log_dir``, beside the logs, and those named."""
    from ray_sentinel import config
    from ray_sentinel.logs.catalogue import USER_FILE

    own = config.load().directory() / USER_FILE
    beside = root / USER_FILE if root.is_dir() else None
    found = [path for path in (own, beside) if path is not None and path.is_file()]
    return [path for path in found if _may_be_used(path)] + files


def _may_be_used(path: Path) -> bool:
    """Whether a file that nobody named is trusted; says so where it is not."""
    from ray_sentinel.trusted_path import UntrustedPathError, check_trusted_file

    try:
        check_trusted_file(path)
    except UntrustedPathError as error:
        sys.stderr.write(f"{clean(error.about(path))}\n")
        return False
    except OSError:
        pass  # its reader reports what is wrong with it
    return True


# A progress bar on stderr, on a terminal only, while many bytes are read.

Update = Callable[[int, int, str], None]
_WORTH_IT = 64 << 20
"""Bytes of logs from which on a progress bar is shown."""


@contextmanager
def reading_bar() -> Iterator[Update | None]:
    """Yields a function (done, total, label) that moves a bar, or None if stderr is no terminal.

    The bar is shown only for more than 64 MB.
    """
    if not sys.stderr.isatty():
        yield None
        return
    from rich.progress import BarColumn, DownloadColumn, Progress, TimeRemainingColumn

    from ray_sentinel.cli.terminal import Console

    bar = Progress(
        BarColumn(),
        DownloadColumn(),
        TimeRemainingColumn(),
        console=Console(stderr=True),
        transient=True,
    )
    task = bar.add_task("", total=None)

    def update(done: int, total: int, label: str) -> None:
        if total >= _WORTH_IT:
            bar.start()
            bar.update(task, completed=done, total=total)

    try:
        yield update
    finally:
        bar.stop()
