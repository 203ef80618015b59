"""Finds the checks: ours, those of installed packages (``ray_sentinel.checks``), a user's files."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
import types
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

from ray_sentinel.doctor import checks
from ray_sentinel.doctor.check import Check
from ray_sentinel.doctor.plan import ChecksFile
from ray_sentinel.errors import InputError
from ray_sentinel.trusted_path import UntrustedPathError, read_trusted

GROUP = "ray_sentinel.checks"
MAX_CHECK = 16 << 20
"""Most bytes of a user's file of checks; a longer file is refused."""


def all_checks(sources: Iterable[ChecksFile] = ()) -> tuple[Check[Any], ...]:
    """Every check, ours first. A later one of the same name replaces an earlier one.

    Raises InputError for a user's file that cannot be loaded.
    """
    found: dict[str, Check[Any]] = {}
    for check in (*_ours(), *_installed(), *(c for s in sources for c in _from_source(s))):
        found[check.name] = check
    return tuple(found.values())


def read_source(path: Path) -> ChecksFile:
    """Read a user's file. Raises InputError if it cannot be read, or if others can have written
    it."""
    try:
        return ChecksFile(name=path.name, text=read_trusted(path, most=MAX_CHECK).data.decode())
    except UntrustedPathError as error:
        raise InputError(error.about(path)) from None
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise InputError(f"{path}: is not UTF-8 text, so no Python file") from None


def _ours() -> Iterator[Check[Any]]:
    for info in sorted(pkgutil.iter_modules(checks.__path__), key=lambda info: info.name):
        yield from _in(vars(importlib.import_module(f"{checks.__name__}.{info.name}")))


def _installed() -> Iterator[Check[Any]]:
    for point in entry_points(group=GROUP):
        what = f"the check {point.name} ({point.value})"
        with _loading(what, "mend or uninstall the package that brings it"):
            check = point.load()()
        yield check


def _from_source(source: ChecksFile) -> Iterator[Check[Any]]:
    module = types.ModuleType(f"ray_sentinel_user_check_{Path(source.name).stem}")
    with _loading(source.name, "mend the file"):
        exec(compile(source.text, source.name, "exec"), module.__dict__)
        found = list(_in(vars(module)))
    if not found:
        raise InputError(
            f"{source.name}: defines no check: make a class of ray_sentinel.doctor.check.Check"
        )
    yield from found


@contextmanager
def _loading(what: str, remedy: str) -> Iterator[None]:
    try:
        yield
    except (
        Exception,
        SystemExit,
    ) as error:  # anybody's code fails in any way; the message says whose it is
        raise InputError(f"{what}: cannot be loaded: {error!r}; {remedy}") from error


def _in(names: Mapping[str, Any]) -> Iterator[Check[Any]]:
    for value in names.values():
        if (
            inspect.isclass(value)
            and issubclass(value, Check)
            and value.__module__ == names["__name__"]
            and value.name
        ):
            yield value()
