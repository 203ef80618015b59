"""Loads the catalogue that the package ships, and the user's own entries."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping
from functools import lru_cache
from importlib import resources
from pathlib import Path
from typing import Any

from ray_sentinel.config import parse_toml
from ray_sentinel.errors import ConfigError
from ray_sentinel.evidence.logs.errors.catalogue import Catalogue
from ray_sentinel.evidence.logs.errors.signatures import (
    Advice,
    Signature,
    check_expressions,
    parse_entries,
    read_tables,
)
from ray_sentinel.evidence.logs.training.phases import PhaseMark
from ray_sentinel.trusted_path import UntrustedPathError, read_trusted

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

USER_FILE = "catalogue.toml"
"""The name of the file with a user's own entries in ``log_dir``."""

MAX_BYTES = 16 << 20
"""Most bytes of a catalogue's file; a larger one is refused."""

_Entries = tuple[list[tuple[str, Signature]], list[Advice], list[PhaseMark]]


def load_catalogue(files: Iterable[Path] = ()) -> Catalogue:
    """The built-in catalogue with the entries of ``files`` added; an entry replaces another of the
    same id.

    Raises ConfigError, naming the file, the entry and the key.
    """
    own = [Path(file).expanduser() for file in files]
    if not own:
        return _builtin()
    signatures, advice, marks = _packaged()
    extra: list[tuple[str, Signature]] = []
    for path in own:
        found = _parsed(_read(path), str(path))
        for mark in found[2]:
            check_expressions(mark.pattern, f"{path}: phase {mark.id}: pattern")
        extra += found[0]
        advice = advice + found[1]
        marks = marks + found[2]
    return Catalogue(signatures, advice, marks, own=extra)


@lru_cache(maxsize=1)
def _builtin() -> Catalogue:
    return Catalogue(*_packaged())


def _packaged() -> _Entries:
    signatures: list[tuple[str, Signature]] = []
    advice: list[Advice] = []
    marks: list[PhaseMark] = []
    folder = resources.files("ray_sentinel.evidence.logs") / "catalogue"
    for item in sorted(folder.iterdir(), key=lambda entry: entry.name):
        if item.name.endswith(".toml"):
            found = _parsed(tomllib.loads(item.read_text(encoding="utf-8")), item.name)
            signatures += found[0]
            advice += found[1]
            marks += found[2]
    return signatures, advice, marks


def _parsed(data: Mapping[str, Any], where: str) -> _Entries:
    signatures, advice = parse_entries(data, where)
    marks = read_tables(data, "phase", PhaseMark, where)
    return [(where, entry) for entry in signatures], list(advice), list(marks)


def _read(path: Path) -> dict[str, Any]:
    try:
        return parse_toml(read_trusted(path, most=MAX_BYTES).data, tomllib)
    except UntrustedPathError as error:
        raise ConfigError(error.about(path)) from None
    except FileNotFoundError:
        raise ConfigError(f"{path}: there is no such catalogue file") from None
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error.strerror}") from None
    except ValueError as error:
        raise ConfigError(f"{path}: is not valid TOML: {error}") from None
