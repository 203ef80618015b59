"""The list of all commands, by what one wants to do; and which one was meant by a mistyped word."""

from __future__ import annotations

import argparse
from collections.abc import Iterable
from typing import Any, NamedTuple

GROUPS = {
    "watch": "watch a job",
    "look": "look while it runs",
    "explain": "explain after the fact, from files anywhere",
    "prepare": "before a run",
    "operate": "operate",
}
"""The title of each group of commands (a module's ``GROUP``), in the order in which they are
shown."""

FOOT = """\
Every command has --help, which tells its exit codes (0 all is well, 1 a problem was found, 2 wrong
usage, 3 something needed was not reached), and nearly all have --json for programs.
"""


OTHER_NAMES = {
    "check": "doctor",
    "hosts": "status",
    "list": "status",
    "nodes": "status",
    "preflight": "doctor",
    "ps": "status",
    "ranks": "status",
    "show": "incidents",
    "start": "up",
    "stop": "down",
    "supervise": "run",
    "watch": "top",
    "why": "incidents",
}
"""Words that people try first, and the command that does it."""


class CommandEntry(NamedTuple):
    """One command."""

    group: str
    name: str
    help: str
    example: str


class OverviewParser(argparse.ArgumentParser):
    """Shows its commands in groups, each with an example."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.entries: list[CommandEntry] = []

    def format_help(self) -> str:
        """The usage, the groups, and what holds for all commands."""
        parts = [self.format_usage(), f"{self.description}\n"]
        for key, title in GROUPS.items():
            there = [entry for entry in self.entries if entry.group == key]
            if there:
                lines = "\n".join(map(_describe, there))
                parts.append(f"{title}:\n{lines}\n")
        return "\n".join([*parts, FOOT])


def _describe(entry: CommandEntry) -> str:
    return f"  {entry.name:<12}{entry.help}\n  {'':<12}  $ {entry.example}"


def unknown(word: str, names: Iterable[str]) -> str:
    """The message for an unknown command."""
    import difflib  # 5 ms, for which nobody else should wait

    typed = word.lower()[:40]
    near = difflib.get_close_matches(typed, list(names), n=1)
    guess = OTHER_NAMES.get(typed) or next(iter(near), "")
    meant = f"did you mean {guess}? " if guess else ""
    return f"there is no command {word[:80]!r}: {meant}`ray-sentinel --help` lists all commands"
