"""``ray-sentinel``: finds the command, parses the line, maps errors to exit codes."""

from __future__ import annotations

import argparse
import contextlib
import importlib
import io
import os
import sys
from collections.abc import Sequence
from itertools import pairwise
from types import ModuleType

from ray_sentinel.cli import commands
from ray_sentinel.cli.output import escape_unencodable, print_error
from ray_sentinel.cli.overview import COMMANDS, OverviewParser, unknown
from ray_sentinel.errors import SentinelError, UnreachableError, UsageError
from ray_sentinel.version import __version__


def build_parser(only: str | None = None) -> argparse.ArgumentParser:
    """The whole parser, or (for speed) one that holds a single command; none if that is empty."""
    parser = OverviewParser(
        prog="ray-sentinel",
        description="Names the rank that hangs a distributed training job on Ray, and says why.",
    )
    parser.add_argument("--version", action="version", version=f"ray-sentinel {__version__}")
    subparsers = parser.add_subparsers(
        dest="command", metavar="COMMAND", parser_class=argparse.ArgumentParser
    )
    for entry in COMMANDS:
        if only not in (None, entry.name):
            continue
        module = _module(entry.name)
        sub = subparsers.add_parser(
            entry.name,
            help=entry.help,
            description=module.__doc__,
            epilog=f"example:\n  {entry.example}",
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        module.add_arguments(sub)
        sub.set_defaults(run_command=module.run)
    return parser


def _module(name: str) -> ModuleType:
    return importlib.import_module(f"{commands.__name__}.{name}")


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command. Exit codes: 0 well, 1 something found, 2 wrong usage, 3 out of reach."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    if sys.stdout is None:  # closed by whoever started us: nobody reads the answer, its code counts
        sys.stdout = io.StringIO()
    escape_unencodable((sys.stdout, sys.stderr))
    typed = [word for word in arguments if not word.startswith("-")]
    only = typed[0] if typed else ""
    if typed and only not in {entry.name for entry in COMMANDS}:
        return _failed(unknown(only), UsageError.exit_code)
    # Without a command there is only the list of all, for which none has to be imported.
    parser = build_parser(only)
    if only:
        # What a command lets people leave out.
        spelled_out = getattr(_module(only), "spelled_out", list)
        own = arguments.index(only) + 1
        arguments = [*arguments[:own], *spelled_out(arguments[own:])]
    args, not_known = parser.parse_known_args(arguments)
    if not_known:
        where = f"ray-sentinel {only}".rstrip()
        words = " ".join(not_known)[:80]
        told = f"unrecognized arguments: {words}: `{where} --help` lists those that there are"
        return _failed(told, UsageError.exit_code)
    if args.command is None:
        parser.print_help(sys.stderr)
        return UsageError.exit_code
    as_json = bool(getattr(args, "json", False))
    try:
        if only != "run":  # its words are another program's
            _refuse_empty(arguments)
        code = int(args.run_command(args))
        _flush()
        return code
    except SentinelError as error:
        return _failed(str(error), error.exit_code, as_json=as_json)
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:
        # The reader of our output (head, less) has gone: nothing is wrong.
        _discard_output()
        return 0
    except OSError as error:
        # What no command expects of a disk or a file: full, gone meanwhile, not ours to read.
        where = f"{error.filename}: " if error.filename is not None else ""
        text = f"{where}{error.strerror or error}"
        return _failed(text, UnreachableError.exit_code, as_json=as_json)


def _refuse_empty(arguments: Sequence[str]) -> None:
    """An empty path would be the folder that we are in. Raises UsageError."""
    for before, word in pairwise(arguments):
        if not word and not before.startswith("-"):
            raise UsageError("an argument is empty: is a variable of the shell not set?")


def _failed(message: str, code: int, *, as_json: bool = False) -> int:
    try:
        print_error(message, as_json=as_json)
        _flush()
    except OSError:
        _discard_output()  # nobody reads it, or there is no room for it
    return code


def _flush() -> None:
    """Flush now, and not when the interpreter ends, where a failure could only be lost."""
    sys.stdout.flush()


def _discard_output() -> None:
    """Discard what is still to be written."""
    with contextlib.suppress(AttributeError, OSError, ValueError):  # no stream, or none of a file
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stdout.fileno())
        os.close(nowhere)


if __name__ == "__main__":
    sys.exit(main())
