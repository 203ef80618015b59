"""Modules that lie beside a plugin's file, imported only if no other user can have written them.

The folder is not put on ``sys.path``: each module in it is checked when it is imported, its source
is read from the file that was checked, and no byte code beside it is read or written.
"""

from __future__ import annotations

import contextlib
import sys
import types
from collections.abc import Iterator, Sequence
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from importlib.util import spec_from_file_location
from typing import Any

from ray_sentinel.trusted_path import UntrustedPathError, check_trusted_file, read_trusted

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
