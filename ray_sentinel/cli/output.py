"""Output of commands: JSON for programs, rich text for people, never raw control characters."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import msgspec

from ray_sentinel import regex as re
from ray_sentinel.errors import InputError
from ray_sentinel.text import CONTROL
from ray_sentinel.text import clean as clean  # for the commands, which print what others wrote

if TYPE_CHECKING:  # rich, which is needed where tables are shown, and not for `--json`
    from ray_sentinel.cli.terminal import Console

_NOT_ASCII = re.compile(r"[^\t\n -~]")


def print_json(value: Any) -> None:
    """Print ``value`` (plain data or records) as one indented JSON document."""
    _write_json(json_text(value, in_order=True))


def print_json_line(value: Any) -> None:
    """Print ``value`` as one line of JSON and flush it, for programs that read a stream."""
    _write_json(json_text(value, indent=0))
    sys.stdout.flush()


def print_next_steps(say: Printer, steps: Sequence[str]) -> None:
    """Print what to do next, numbered; nothing where there is nothing to do."""
    if steps:
        say("\nWhat to do:", "bold")
    for number, step in enumerate(steps, 1):
        say(f"  {number}. {step}")


def json_text(value: Any, *, in_order: bool = False, indent: int = 2) -> str:
    """``value`` (plain data or records) as JSON; ``in_order`` sorts the keys, ``indent`` 0 is one
    line."""
    try:
        try:
            encoded = msgspec.json.encode(value, order="deterministic" if in_order else None)
        except TypeError:  # msgspec sorts no keys but texts, and some are numbers
            plain = msgspec.to_builtins(value, str_keys=True)
            encoded = msgspec.json.encode(plain, order="deterministic")
        return (msgspec.json.format(encoded, indent=indent) if indent else encoded).decode()
    except UnicodeEncodeError:
        # A name of a file that is no UTF-8: as an escape, from which Python gets it back.
        plain = msgspec.to_builtins(value, str_keys=True)
        return json.dumps(plain, sort_keys=in_order, indent=indent or None)


def _write_json(text: str) -> None:
    sys.stdout.write((CONTROL if _stdout_is_utf8() else _NOT_ASCII).sub(_escaped, text) + "\n")


def write_report(path: Path, text: str) -> None:
    """Write a report to a file, with bytes that are not text as escapes. Raises InputError."""
    try:
        path.write_text(text, encoding="utf-8", errors="backslashreplace")
    except OSError as error:
        raise InputError(f"{path} cannot be written: {error.strerror}") from None


def _stdout_is_utf8() -> bool:
    return (sys.stdout.encoding or "").lower().replace("-", "") == "utf8"


def _escaped(found: re.Match[str]) -> str:
    """The character as an escape of JSON, which may contain characters from 0x7f on as they are."""
    units = found.group().encode("utf-16-be").hex()
    return "".join(f"\\u{units[at : at + 4]}" for at in range(0, len(units), 4))


def escape_unencodable(streams: Iterable[Any]) -> None:
    """Make streams write characters outside their encoding as escapes, so that no command fails
    because of an arrow in its text."""
    for stream in streams:
        if hasattr(stream, "reconfigure"):  # not so where it was closed, or is not a text file
            stream.reconfigure(errors="backslashreplace")


def console() -> Console:
    """A console for people. Its text comes from ranks and logs, so ``[job]`` is not a style in it,
    and ``train.py:100:`` not an emoji."""
    from ray_sentinel.cli.terminal import Console

    return Console(highlight=False, markup=False, emoji=False)


class Printer(Protocol):
    """Prints one text, which is never wrapped to the terminal's width."""

    def __call__(self, text: str, style: str = "") -> None: ...


def text_printer() -> Printer:
    """A function that prints texts on stdout, without control characters."""
    shown = console()

    def print_text(text: str, style: str = "") -> None:
        shown.print(clean(text), style=style or None, soft_wrap=True)

    return print_text


def print_error(message: str, *, as_json: bool = False) -> None:
    """Print an error for people on stderr, and with ``as_json`` ``{"error": ...}`` on stdout."""
    if as_json and sys.stdout is not None:
        print_json({"error": message})
    if sys.stderr is not None:  # None where it was closed before we started
        sys.stderr.write(f"ray-sentinel: {clean(message)}\n")
