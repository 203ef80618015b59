"""Explains mistakes in YAML files: what was meant, where the parser only says where it stopped.

PyYAML parses; only what it does not report is written here. yamllint, which is under the GPL, stops
where PyYAML stops and says the same there; ruamel.yaml is a fork of PyYAML with the same messages.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec
import yaml

from ray_sentinel import regex as re

MOST_BYTES = 4 << 20
"""Most bytes of a configuration: a larger file is something else, such as a checkpoint."""
MOST_MISTAKES = 1000
"""Most mistakes of one kind that are reported."""

_NO_SPACE = re.compile(r"^\s*(?:- )?(?P<key>[A-Za-z_][\w.-]*):(?P<value>[^\s:/][^#]*?)\s*(?:#.*)?$")
_TWO_COLONS = re.compile(r"^\s*(?:- )?(?P<key>[\w.-]+):\s+(?P<value>[^\s\"'{\[#&*!|>][^#]*: .*)$")
_STARTERS = {"@": "at sign", "`": "backtick", "%": "percent sign", "*": "asterisk"}
_NUMBERS = ("tag:yaml.org,2002:int", "tag:yaml.org,2002:float")
_NO_KEY = "could not find expected ':'"


class Mistake(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that is wrong with a configuration."""

    line: int | None = None
    """Counts from 1; None if it is not known, or no matter of a line."""
    text: str
    remedy: str
    fatal: bool = True
    """Whether the file cannot be loaded; if False, it can be, but means something other than it
    seems to."""


class Read(msgspec.Struct, frozen=True, kw_only=True):
    """A file's contents, and what is wrong with it."""

    data: Any = None
    mistakes: tuple[Mistake, ...] = ()


def read(text: str) -> Read:
    """Parse ``text``; never raises for what it holds."""
    try:
        loader = _Loader(text)
        try:
            data = loader.get_single_data()
        finally:
            loader.dispose()
    except yaml.MarkedYAMLError as error:
        return Read(mistakes=(_explain(error, text),))
    except yaml.YAMLError as error:
        return Read(mistakes=(_unreadable(error),))
    except RecursionError:
        text = "it is nested too deeply to be read"
        return Read(mistakes=(Mistake(text=text, remedy="flatten it"),))
    except ValueError as error:
        # A date such as 2024-13-45 looks like one to the parser, but is not.
        remedy = "put quotes around what is no number and no date"
        return Read(mistakes=(Mistake(text=str(error), remedy=remedy),))
    return Read(data=data, mistakes=(*loader.odd, *_missing_spaces(text, data)))


class _Loader(yaml.SafeLoader):
    """Safe, and remembers what loads as something else than it seems to be.

    Keys that stand twice in one mapping, of which the parser takes the last, and numbers with
    colons, which are base 60 (YAML 1.1, "int" and "float": 20:30 is 1230).
    """

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.odd: dict[Mistake, None] = {}

    def construct_mapping(self, node: Any, deep: bool = False) -> dict[Any, Any]:
        """Construct the value as YAML does, and note what is odd."""
        seen: dict[str, int] = {}
        for key, value in node.value if isinstance(node, yaml.MappingNode) else ():
            if not isinstance(key, yaml.ScalarNode) or key.value == "<<":
                continue
            line = key.start_mark.line + 1
            if key.value in seen:
                text = f"{key.value} stands twice, first in line {seen[key.value]}: the last counts"
                self._note(line, text, "remove one of them")
            seen[key.value] = line
            if value.tag in _NUMBERS and value.style is None and ":" in value.value:
                number = self.construct_object(value)
                text = f"the value of {key.value} is no text, but the number {number} in base 60"
                remedy = f'put it in quotes: {key.value}: "{value.value}"'
                self._note(value.start_mark.line + 1, text, remedy)
        return super().construct_mapping(node, deep)

    def _note(self, line: int, text: str, remedy: str) -> None:
        mistake = Mistake(line=line, text=text, remedy=remedy, fatal=False)
        if len(self.odd) < MOST_MISTAKES:
            self.odd[mistake] = None


def _explain(error: yaml.MarkedYAMLError, text: str) -> Mistake:
    mark = error.problem_mark or error.context_mark
    number = mark.line + 1 if mark is not None else None
    lines = text.splitlines()
    # The parser stops where it notices; the line above is as often the one that is wrong.
    for near in (number, (number or 0) - 1) if number else ():
        line = lines[near - 1] if 0 < near <= len(lines) else ""
        if (found := _in_line(line, near)) is not None:
            return found
    return Mistake(
        line=number,
        text=f"{error.problem or 'it cannot be read'}"
        + (f" ({error.context})" if error.context else ""),
        remedy=_remedy(error, lines[number - 1] if number and number <= len(lines) else ""),
    )


def _in_line(line: str, number: int) -> Mistake | None:
    if "\t" in line[: len(line) - len(line.lstrip())]:
        text = "a tab indents the line; YAML takes spaces only"
        return Mistake(line=number, text=text, remedy="replace the tab by two spaces")
    if found := _NO_SPACE.match(line):
        return _no_space(found, number, fatal=True)
    if found := _TWO_COLONS.match(line):
        key, value = found["key"], found["value"].strip()
        text = f"the value of {key} holds a colon and a space, as a key does"
        return Mistake(line=number, text=text, remedy=f'put it in quotes: {key}: "{value}"')
    value = line.partition(": ")[2].strip()
    if value[:1] in _STARTERS:
        text = f"a value cannot begin with {_STARTERS[value[0]]} {value[0]}"
        return Mistake(line=number, text=text, remedy=f'put it in quotes: "{value}"')
    return None


def _remedy(error: yaml.MarkedYAMLError, line: str) -> str:
    said = f"{error.problem} {error.context}"
    if "quoted scalar" in said:
        return "close the quotes"
    if "flow" in said or "',' or" in said:
        return "close the bracket, and put commas between its items"
    if "block end" in said or "indent" in said or "block mapping" in said:
        return "indent the keys of one mapping by the same number of spaces"
    if "undefined alias" in said:
        return "quote the text if the * is no reference"
    if "tag" in said:
        return "remove the !tag: nobody would load it safely"
    if _NO_KEY in said and line.strip():
        return f"write {line.split()[0].rstrip(':')}: VALUE, with a colon and a space"
    return "mend the line, or quote the value"


def _unreadable(error: yaml.YAMLError) -> Mistake:
    text = " ".join(str(error).split())[:200]
    return Mistake(text=text, remedy="save it as UTF-8 text, without control characters")


def _missing_spaces(text: str, data: Any) -> Iterator[Mistake]:
    """``lr:1e-4`` alone is a text, not a key: it loads, and means nothing."""
    scalars = set(_scalars(data))
    told = 0
    for number, line in enumerate(text.splitlines(), 1):
        found = _NO_SPACE.match(line)
        if found and not line.lstrip().startswith("- ") and line.strip() in scalars:
            yield _no_space(found, number, fatal=False)
            told += 1
            if told >= MOST_MISTAKES:
                return


def _scalars(data: Any) -> Iterator[str]:
    stack, seen = [data], set()
    while stack:
        item = stack.pop()
        if isinstance(item, str):
            yield item
        elif isinstance(item, dict | list) and id(item) not in seen:
            seen.add(id(item))
            stack += list(item.values()) if isinstance(item, dict) else item


def _no_space(found: re.Match[str], number: int, *, fatal: bool) -> Mistake:
    return Mistake(
        line=number,
        text=f"the space after the colon of {found['key']} is missing",
        remedy=f"write {found['key']}: {found['value']}",
        fatal=fatal,
    )
