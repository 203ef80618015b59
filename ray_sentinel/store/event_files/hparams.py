"""Lightning's ``hparams.yaml``: a run's parameters, beside its event files or its ``metrics.csv``.

Both of Lightning's loggers (``TensorBoardLogger``, ``CSVLogger``) write it into the run's folder,
``lightning_logs/version_0``. Values of Python classes carry tags (``!!python/object``); those are
left out, and nothing in the file is ever executed.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

from ray_sentinel.errors import InputError
from ray_sentinel.regular_file import open_regular
from ray_sentinel.store.event_files.config import MAX_VALUE
from ray_sentinel.store.event_files.find import find_event_files, find_files

NAME = "hparams.yaml"
MOST_BYTES = 256 << 10
"""Most bytes of the file, whose parameters take some kilobytes; a larger one is not read."""
MAX_PARAMETERS = 2000
"""Most parameters that are read: YAML anchors can make many of a few lines."""
MAX_DEPTH = 5
"""Most levels of nested sections that are read."""
MAX_ITEMS = 50
"""Most items of a list that are shown."""


class _Loader(yaml.SafeLoader):
    """Plain values only."""


def _other(loader: _Loader, suffix: str, node: yaml.Node) -> None:
    """A value of some Python class."""


_Loader.add_multi_constructor("tag:", _other)
_Loader.add_multi_constructor("!", _other)


def read_hparams(folder: Path, notes: list[str]) -> dict[str, str]:
    """Parameters of the run in a folder, nested ones as ``optimizer.lr``; empty without a file.

    Damage is reported in ``notes``.
    """
    file = folder / NAME
    try:
        with open_regular(file) as stream:
            data = stream.read(MOST_BYTES + 1)
    except FileNotFoundError:
        return {}
    except OSError as error:
        notes.append(f"{file} cannot be read ({error.strerror}); its parameters are not known")
        return {}
    if len(data) > MOST_BYTES:
        notes.append(f"{file} is larger than {MOST_BYTES >> 10} KiB; its parameters are not read")
        return {}
    found = parse_hparams(data)
    if found is None:
        notes.append(f"{file} is no YAML mapping; its parameters are not known")
    return found or {}


def hparams_alone(folder: Path | None, run: str, notes: list[str]) -> dict[str, str]:
    """Parameters of a run below ``folder`` that wrote no event files, as with the CSV logger.

    Of several runs the one named ``run`` is used; without a name, none is, and ``notes`` say so.
    Raises InputError if there are runs and none, or more than one, has that name.
    """
    if folder is None or not folder.is_dir() or find_event_files(folder):
        return {}
    places = [file.parent for file in find_files(folder, lambda name: name == NAME)]
    if run and places:
        length = len(Path(run).parts)
        found = [place for place in places if place.parts[-length:] == Path(run).parts]
        if len(found) != 1:
            raise InputError(f"{folder}: {len(found)} runs are named {run!r}: {_names(places)}")
        places = found
    if len(places) > 1:
        notes.append(
            f"{folder} holds the parameters of {len(places)} runs ({_names(places)}): none are "
            "taken; choose one with --run"
        )
        return {}
    return read_hparams(places[0], notes) if places else {}


def _names(places: list[Path]) -> str:
    root = Path(os.path.commonpath(list(places)))
    return ", ".join(os.path.relpath(place, root) for place in places)


def parse_hparams(data: bytes) -> dict[str, str] | None:
    """The parameters in a ``hparams.yaml``; None for anything else.

    >>> parse_hparams(b"lr: 0.1\\noptimizer:\\n  name: adam\\n  betas: [0.9, 0.95]\\nseed: null\\n")
    {'lr': '0.1', 'optimizer.name': 'adam', 'optimizer.betas': '0.9, 0.95'}
    """
    try:
        loaded = yaml.load(data, _Loader)
    except (yaml.YAMLError, ValueError, RecursionError):
        return None
    if loaded is None:
        return {}
    if not isinstance(loaded, dict):
        return None
    members = itertools.islice(_flat(loaded, "", 0), MAX_PARAMETERS)
    return {name: text for name, value in members if (text := _text(value))}


def _flat(members: dict[Any, Any], above: str, depth: int) -> Iterator[tuple[str, Any]]:
    for key, value in members.items():
        name = f"{above}{key}"
        yield name, value
        if isinstance(value, dict) and depth < MAX_DEPTH:
            yield from _flat(value, f"{name}.", depth + 1)


def _text(value: Any) -> str:
    """A plain value, or a list of such; empty of others."""
    if isinstance(value, (str, int, float, bool)):
        return str(value)[:MAX_VALUE]
    if isinstance(value, list) and all(isinstance(one, (str, int, float)) for one in value):
        return ", ".join(str(one)[:MAX_VALUE] for one in value[:MAX_ITEMS])[:MAX_VALUE]
    return ""
