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

    near = difflib.get_close_matches(word.lower()[:40], list(names), n=1)
    meant = f"did you mean {near[0]}? " if near else ""
    return f"there is no command {word[:80]!r}: {meant}`ray-sentinel --help` lists all commands"
