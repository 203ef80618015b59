"""In the collector's process: from a source to a collector that is ready to run."""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import os
import sys
import types
from collections.abc import Iterator, Sequence
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from importlib.util import spec_from_file_location
from pathlib import Path
from typing import Any

import msgspec

from ray_sentinel.api import Collector, Context
from ray_sentinel.collect.protocol import COMMON_KEYS, CollectorSource, Setup
from ray_sentinel.errors import InputError
from ray_sentinel.trusted_path import UntrustedPathError, check_trusted_file, read_trusted


def collector_class(source: CollectorSource) -> type[Collector]:
    """The class that ``source`` names.

    Raises InputError if there is none, and whatever its module raises when imported.
    """
    if source.kind == "script":
        from ray_sentinel.collect.script import ScriptCollector

        return ScriptCollector
    if source.kind == "entry-point":
        module_name, _, attribute = source.target.partition(":")
        found: Any = importlib.import_module(module_name)
    else:
        found, attribute = _load_file(Path(source.target), Path(source.origin)), source.class_name
    for part in attribute.split("."):
        found = getattr(found, part, None)
    if not (isinstance(found, type) and issubclass(found, Collector)):
        raise InputError(f"{source.origin or source.target}: {attribute} is not a Collector class")
    return found


def make(setup: Setup) -> Collector:
    """Create the collector. Raises Skip if it asks to be left out, ConfigError for its options,
    InputError for its source, and whatever its own code raises."""
    kind = collector_class(setup.source)
    context = Context(
        **msgspec.structs.asdict(setup.roots),
        host=setup.host,
        options=_options(setup, kind),
        state_dir=setup.state_dir,
        log_dir=setup.log_dir,
        live=setup.live,
    )
    told = (context, setup.source) if setup.source.kind == "script" else (context,)
    collector = kind(*told)
    for attribute, value in (("interval", setup.interval), ("deadline", setup.deadline)):
        if value is not None:
            setattr(collector, attribute, value)
    return collector


def module_of(collector: Collector) -> types.ModuleType | None:
    """The module that the collector's class was written in."""
    return sys.modules.get(type(collector).__module__)


def _options(setup: Setup, kind: type[Collector]) -> Any:
    try:
        return msgspec.convert(setup.options, kind.Options)
    except msgspec.ValidationError:
        # Light processes: the module that explains is imported when there is something to explain.
        from ray_sentinel.config import convert

        where = f"[collectors.{setup.source.name}]"
        return convert(setup.options, kind.Options, where=where, strict=False, beside=COMMON_KEYS)


def _load_file(file: Path, origin: Path) -> types.ModuleType:
    """Import ``file`` under a name of its own; neighbours of the original can be imported too."""
    name = f"ray_sentinel_plugin_{origin.stem}"
    spec = importlib.util.spec_from_file_location(name, file)
    if spec is None or spec.loader is None:
        raise InputError(f"{origin}: is not a Python file")
    make_importable(os.path.dirname(os.path.abspath(origin)))
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


# Modules that lie beside a plugin's file, imported only if no other user can have written them.
#
# The folder is not put on ``sys.path``: each module in it is checked when it is imported, its
# source is read from the file that was checked, and no byte code beside it is read or written.

MAX_MODULE = 32 << 20
"""Most bytes of a module's source; a longer one is not loaded."""


def make_importable(folder: str) -> None:
    """Make modules of ``folder`` (absolute) importable, after all others of the same name."""
    known = [finder for finder in sys.meta_path if isinstance(finder, _Neighbours)]
    if any(finder.folder == folder for finder in known):
        return
    # What lies in a package would else be found by the package's own path.
    sys.meta_path.insert(0, _Neighbours(folder, at_top=False))
    sys.meta_path.append(_Neighbours(folder, at_top=True))


class _TrustedSource(SourceFileLoader):
    def get_data(self, path: str) -> bytes:
        if path != self.path:
            raise OSError(f"{path}: byte code is not read")
        with _as_import_error(path):
            return read_trusted(path, most=MAX_MODULE).data

    def set_data(self, path: str, data: Any, *, _mode: int = 0o666) -> None:
        """Writes no byte code."""


class _Neighbours:
    """Finds the modules at the top of ``folder``, or those of packages in it."""

    def __init__(self, folder: str, *, at_top: bool) -> None:
        self.folder = folder
        self._at_top = at_top

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: types.ModuleType | None = None
    ) -> ModuleSpec | None:
        """The judged module of that name; None if there is none. Raises ImportError."""
        spec = PathFinder.find_spec(name, self._places(path), target)
        if spec is None or spec.origin is None:
            return spec
        if not isinstance(spec.loader, SourceFileLoader):
            with _as_import_error(spec.origin):
                check_trusted_file(spec.origin)
            return spec
        inside = spec.submodule_search_locations
        loader = _TrustedSource(name, spec.origin)
        return spec_from_file_location(
            name, spec.origin, loader=loader, submodule_search_locations=inside
        )

    def _places(self, path: Sequence[str] | None) -> list[str]:
        if self._at_top:
            return [self.folder] if path is None else []
        return [one for one in path or () if one.startswith(f"{self.folder}/")]


@contextlib.contextmanager
def _as_import_error(path: str) -> Iterator[None]:
    try:
        yield
    except UntrustedPathError as error:
        raise ImportError(f"{path}: is not imported: {error}") from None
