"""The catalogue's records: what one signature is, and how a catalogue matches a line.

A signature is data: words that a line must hold (``match``, any of them, upper and lower case
alike), expressions that refine them (``pattern``, any), and what it means. Entries that belong
together are distinguished by ``role``:

``cause``     says why: can be the first cause.
``symptom``   says that something failed, but not why (an actor died, a rank was killed).
``echo``      follows from another process's failure; the answer only if nothing better is known.
``harmless`` looks like trouble but is not. ``note`` no trouble at all: that training finished, that
a side service came up.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, TypeVar, get_args

import msgspec

from ray_sentinel import regex as re
from ray_sentinel.errors import ConfigError
from ray_sentinel.model.triage import FailureClass

Role = Literal["cause", "symptom", "echo", "harmless", "note"]
Accuses = Literal["self", "named", "nobody"]
"""Whom a line speaks against: the process that printed it, the one named in it, or nobody."""

CLASSES = frozenset(get_args(FailureClass))
Entry = TypeVar("Entry")


class Citation(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Where an entry comes from: a document's title and the section or table row in it."""

    document: str
    section: str = ""


class Signature(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """One entry of the catalogue."""

    id: str
    kind: str = msgspec.field(name="class", default="")
    role: Role = "cause"
    match: tuple[str, ...] = ()
    pattern: tuple[str, ...] = ()
    """Regular expressions that match a line. Their named groups rank, local, pid, ip, host, gpu,
    code, signal and step are facts about the culprit."""
    unless: tuple[str, ...] = ()
    """Regular expressions; a line that one of them matches too is no match after all."""
    at_startup: str = ""
    """The class that replaces ``class`` while no step has been made."""
    peer_lost: bool = False
    """The line says that a peer is gone or no longer answers: an echo of whatever any process says
    of its own failure within a minute before or after."""
    engine: bool = False
    """The line is a serving engine's message that it waits, or that a replica is replaced; lines of
    its work after it (``engine-works``) show that it got over it."""
    least: int = 1
    """Least number of such lines in a file; where there are fewer, none counts."""
    event: bool = False
    """The line says that something happened: it counts whatever level the line gives itself."""
    frames: bool = False
    """``match`` and ``pattern`` are for the frames of a traceback ("file:line function") whose
    exception no other entry knows."""
    connections: bool = False
    """``match`` and ``pattern`` are for the frames of a traceback whose exception says only that a
    connection failed: they show what the connection was for."""
    files: tuple[str, ...] = ()
    """Kinds of files to which the entry applies ("kernel", "raylet", "nccl", ...); empty for
    all."""
    accuses: Accuses = "self"
    severity: Literal["info", "warning", "critical"] = "critical"
    weight: int = 50
    """How specific the entry is, from 0 to 100: decides between several that match one line."""
    cause: str = ""
    remedy: tuple[str, ...] = ()
    source: tuple[Citation, ...] = ()

    @property
    def harmless(self) -> bool:
        """Whether the line only looks like trouble."""
        return self.role == "harmless"


class Advice(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What to do about a class, or about something that no single line shows."""

    id: str
    kind: str = msgspec.field(name="class", default="")
    """The class that the advice is for. Empty for background knowledge, which is offered where its
    ``words`` occur in the answer."""
    phase: str = ""
    """The phase in which the job must have stopped for the advice to apply; empty for any."""
    cause: str = ""
    remedy: tuple[str, ...] = ()
    playbook: str = ""
    source: tuple[Citation, ...] = ()


class Expressions(msgspec.Struct, frozen=True, kw_only=True):
    """The words and expressions of an entry, ready to match."""

    literals: tuple[str, ...]
    patterns: tuple[re.Pattern[str], ...]
    unless: tuple[re.Pattern[str], ...] = ()

    def search(self, text: str, lower: str) -> dict[str, str] | None:
        """The named groups if ``text`` matches (``lower`` is it in lower case), else None."""
        for literal in self.literals:  # of all lines: any() would take twice as long
            if literal in lower:
                break
        else:
            return None
        groups: dict[str, str] = {}
        if self.patterns:
            for pattern in self.patterns:
                match = pattern.search(text)
                if match is not None:
                    groups = {k: v for k, v in match.groupdict().items() if v is not None}
                    break
            else:
                return None
        if any(pattern.search(text) for pattern in self.unless):
            return None
        return groups


class CompiledSignature(Expressions, frozen=True, kw_only=True):
    """A signature ready to match."""

    signature: Signature


def compile_rule(signature: Signature, where: str, *, check: bool = True) -> CompiledSignature:
    """Check and compile one entry. Raises ConfigError that names ``where`` and what is wrong.

    ``check``: its expressions are tried now; else an unusable one is met at the first line.
    """
    if not signature.id:
        raise ConfigError(f"{where}: an entry has no id")
    place = f"{where}: signature {signature.id}"
    needs_class = signature.role in ("cause", "symptom", "echo")
    if needs_class and signature.kind not in CLASSES:
        known = ", ".join(sorted(CLASSES))
        raise ConfigError(f"{place}: class {signature.kind!r} is not one of: {known}")
    if signature.at_startup and signature.at_startup not in CLASSES:
        raise ConfigError(f"{place}: at_startup {signature.at_startup!r} is no class")
    if not signature.match:
        raise ConfigError(f"{place}: match needs at least one word that the line must hold")
    short = [word for word in signature.match if len(word.strip()) < 3]
    if short:
        raise ConfigError(
            f"{place}: match word {short[0]!r} is too short; use three letters or more"
        )
    if "\n" in "".join(signature.match):
        raise ConfigError(f"{place}: match words cannot span lines")
    if check:
        check_expressions(signature.pattern, f"{place}: pattern")
        check_expressions(signature.unless, f"{place}: unless")
    return CompiledSignature(
        signature=signature,
        literals=tuple(word.lower() for word in signature.match),
        patterns=tuple(map(re.compile, signature.pattern)),
        unless=tuple(map(re.compile, signature.unless)),
    )


def check_expressions(expressions: tuple[str, ...], where: str) -> None:
    """Raise ConfigError, naming ``where``, for an expression that cannot be used."""
    for text in expressions:
        try:
            re.check(re.compile(text))
        except re.error as error:
            raise ConfigError(
                f"{where} {text!r} is no regular expression to use: {error}"
            ) from None


def parse_entries(
    data: Mapping[str, Any], where: str
) -> tuple[tuple[Signature, ...], tuple[Advice, ...]]:
    """The ``[[signature]]`` and ``[[advice]]`` tables of one catalogue file.

    Raises ConfigError, naming the file, the entry and the key.
    """
    unknown = set(data) - {"signature", "advice", "phase"}
    if unknown:
        raise ConfigError(
            f"{where}: unknown table {sorted(unknown)[0]!r}; a catalogue holds [[signature]], "
            "[[advice]] and [[phase]]"
        )
    signatures = read_tables(data, "signature", Signature, where)
    return signatures, read_tables(data, "advice", Advice, where)


def read_tables(
    data: Mapping[str, Any], key: str, kind: type[Entry], where: str
) -> tuple[Entry, ...]:
    """The ``[[key]]`` tables of a catalogue file. Raises ConfigError, naming the entry."""
    tables = data.get(key, ())
    if not isinstance(tables, list | tuple):
        raise ConfigError(f"{where}: write [[{key}]], with double brackets: there may be several")
    found = []
    for item in tables:
        try:
            found.append(msgspec.convert(item, kind))
        except msgspec.ValidationError as error:
            name = item.get("id", "?") if isinstance(item, Mapping) else "?"
            raise ConfigError(f"{where}: {key} {name}: {error}") from None
    return tuple(found)
