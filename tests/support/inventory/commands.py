"""Facts about commands, settings and functions: they are parsed, bound and called."""

from __future__ import annotations

import contextlib
import inspect
import io
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from typing import Any, get_args, get_type_hints

import pytest

from ray_sentinel.cli.main import build_parser
from ray_sentinel.config import Config, load
from ray_sentinel.errors import ConfigError, UsageError
from tests.support.inventory.row import Check


@lru_cache(maxsize=32)
def _parser(only: str) -> Any:
    return build_parser(only)


def _parsed(*words: str) -> Any:
    with contextlib.redirect_stderr(io.StringIO()):
        return _parser(words[0]).parse_args(words)


def command(*words: str, **values: object) -> Check:
    """The real parser takes the line, with ``values``; with an unknown option it does not."""

    def run(folder: Path) -> None:
        args = _parsed(*words)
        for name, value in values.items():
            assert getattr(args, name) == value, (name, getattr(args, name))
        with pytest.raises(SystemExit):
            _parsed(words[0], "--no-such-option-of-ours", *words[1:])

    return Check(f"ray-sentinel {words[0]}", run)


def option(key: str, value: object, default: object) -> Check:
    """A key of the configuration: its default, and that a file sets it."""

    def run(folder: Path) -> None:
        section, _, name = key.rpartition(".")
        parent = Config() if not section else getattr(Config(), section)
        assert getattr(parent, name) == default
        text = f'"{value}"' if isinstance(value, str) else str(value).lower()
        file = folder / "config.toml"
        file.write_text(f"[{section}]\n{name} = {text}\n" if section else f"{name} = {text}\n")
        told = load(file, environ={})
        assert getattr(getattr(told, section) if section else told, name) == value
        file.write_text(file.read_text().replace(name, f"{name}_x"))
        with pytest.raises(ConfigError, match="unknown key"):
            load(file, environ={})

    return Check(f"configuration: {key}", run)


def call(function: Callable[..., Any], *positional: object, **named: object) -> Check:
    """The function takes these arguments, those with a name by default, and no others."""

    def run(folder: Path) -> None:
        signature = inspect.signature(function)
        signature.bind(*positional, **named)
        for name, value in named.items():
            parameter = signature.parameters[name]
            assert parameter.default == value, name
        with pytest.raises((TypeError, UsageError), match="no_such_argument"):
            function(*positional, no_such_argument=1)

    return Check(f"{function.__module__}.{function.__name__}", run)


def answers(function: Callable[..., Any], field: str, kind: type | None = None) -> Check:
    """What the function returns has that key, of that kind."""

    def run(folder: Path) -> None:
        returned = get_type_hints(function)["return"]
        fields = get_type_hints(returned)
        assert field in fields, sorted(fields)
        assert "no_such_field" not in fields
        if kind is not None:
            told = fields[field]
            assert told is kind or kind in get_args(told), told

    return Check(f"{function.__module__}.{function.__name__}", run)
