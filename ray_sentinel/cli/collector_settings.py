"""A collector's settings as ``collect`` is given them: ``--set``, and where each one stands."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from ray_sentinel import regex as re
from ray_sentinel.config import ENV_PREFIX, load
from ray_sentinel.errors import UsageError

_PLACES = frozenset({"file", "files", "folder", "folders", "path", "paths"})
"""Settings that name files or folders."""
_COMPLAINT = re.compile(r"\[collectors\.(?P<name>[^\]]*)\]: (?:unknown key )?(?P<key>[\w-]*)")


def settings(texts: Sequence[str]) -> dict[str, Any]:
    """``KEY=VALUE`` each, the value JSON or text. Raises UsageError for anything else."""
    return dict(_setting(text) for text in texts)


def placed(
    complaint: str,
    given: Mapping[str, Any],
    file: str | None,
    environ: Mapping[str, str] = os.environ,
) -> str:
    """What is wrong with a collector's setting, and first of all where that is set: in ``given``
    (``--set``), in a variable, or in the configuration file."""
    found = _COMPLAINT.match(complaint)
    if found is None:
        return complaint
    name, key = found["name"], found["key"]
    if key in given:
        return f"--set {key}: {complaint}"
    variable = f"{ENV_PREFIX}COLLECTORS__{name}__{key}".upper()
    if variable in map(str.upper, environ):
        return f"{variable}: {complaint}"
    path = file or environ.get(ENV_PREFIX + "CONFIG")
    if path and key in load(path, environ={}).collectors.get(name, {}):
        return f"{path}: {complaint}"
    return complaint


def _setting(text: str) -> tuple[str, Any]:
    key, separator, value = text.partition("=")
    if not separator or not key.strip():
        raise UsageError(f"--set {text}: write KEY=VALUE")
    key = key.strip()
    try:
        told = msgspec.json.decode(value)
    except (ValueError, RecursionError):
        told = value
    return key, _from_here(told) if key in _PLACES else told


def _from_here(told: Any) -> Any:
    """Relative paths made absolute: a collector's process runs in another folder."""
    if isinstance(told, list):
        return [_from_here(one) for one in told]
    if not isinstance(told, str) or not told or told.startswith("~"):
        return told
    return str(Path.cwd() / told)
