"""Finds collectors: entry points of installed packages, and files in plugin folders.

Nothing is imported here: an entry point names its class, and a Python file is parsed for the
classes that it defines. So a plugin that breaks on import breaks only its own process.
"""

from __future__ import annotations

import ast
import hashlib
import os
from collections.abc import Iterable, Iterator
from importlib import metadata
from pathlib import Path

import msgspec

from ray_sentinel.collect.protocol import CollectorSource
from ray_sentinel.errors import InputError
from ray_sentinel.trusted_path import UntrustedPathError, check_trusted_folder, read_trusted

GROUP = "ray_sentinel.collectors"
MAX_PLUGIN = 32 << 20
"""Most bytes of a plugin's file; a longer file is refused."""


class Plugin(msgspec.Struct, frozen=True, kw_only=True):
    """One file of a plugin folder as it was read: its collectors, or what is wrong with it."""

    path: Path
    data: bytes = b""
    sources: tuple[CollectorSource, ...] = ()
    problem: str = ""
    untrusted: bool = False
    """Whether the file is left alone because somebody else can have written it, as ``problem``
    says."""


def entry_points() -> Iterator[CollectorSource]:
    """The collectors of installed packages, by name; the first of two with the same name counts."""
    seen: set[str] = set()
    for point in sorted(metadata.entry_points(group=GROUP), key=lambda point: point.name):
        if point.name not in seen:
            seen.add(point.name)
            origin = point.dist.name if point.dist is not None else point.module
            yield CollectorSource(
                name=point.name, kind="entry-point", target=point.value, origin=origin
            )


def plugin_files(folders: Iterable[Path]) -> dict[str, Path]:
    """File name → path of what may be plugins; a name in a later folder replaces an earlier one.

    Hidden files, those that begin with an underscore and editors' copies are no plugins. A folder
    that is not there is empty; OSError is raised for one that cannot be read.
    """
    found: dict[str, Path] = {}
    for folder in folders:
        try:
            with os.scandir(folder) as entries:
                names = sorted(entry.name for entry in entries if _maybe(entry))
        except (FileNotFoundError, NotADirectoryError):
            continue
        found.update((name, folder / name) for name in names)
    return dict(sorted(found.items()))


def untrusted_folder(folder: Path) -> str:
    """Why nothing in a plugin folder is run: other users may write to it; empty if it may be run.

    A folder that does not exist, or that contains nothing like a plugin, is not a problem. Raises
    OSError if it cannot be read.
    """
    try:
        check_trusted_folder(folder)
    except (FileNotFoundError, NotADirectoryError):
        return ""
    except UntrustedPathError as error:
        return f"{folder}: no plugin in it is run: {error}" if plugin_files([folder]) else ""
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(folder)) from None
    return ""


def read_plugin(path: Path, *, to_run_here: bool = True) -> Plugin:
    """Read one file and say what it contains. ``problem`` says why a file cannot be used.

    A file that is ``to_run_here`` can import the modules beside it, so no other user may be able to
    write to its folder.
    """
    try:
        file = read_trusted(path, most=MAX_PLUGIN, in_closed_folder=to_run_here)
    except UntrustedPathError as error:
        return Plugin(path=path, problem=error.about(path), untrusted=True)
    except OSError as error:
        return Plugin(path=path, problem=f"{path}: cannot be read: {error.strerror}")
    try:
        sources = tuple(sources_in(path, file.data, executable=bool(file.mode & 0o111)))
    except InputError as error:
        return Plugin(path=path, problem=str(error))
    return Plugin(path=path, data=file.data, sources=sources)


def sources_in(path: Path, data: bytes, *, executable: bool = True) -> Iterator[CollectorSource]:
    """The collectors in a file: a program is one, a Python file has one for each class.

    Raises InputError if there is none, saying why.
    """
    program = data.startswith((b"#!", b"\x7fELF"))
    digest = hashlib.sha256(data).hexdigest()[:16]
    if program and executable:
        yield CollectorSource(
            name=path.stem, kind="script", target=str(path), origin=str(path), digest=digest
        )
        return
    if path.suffix != ".py":
        remedy = "chmod +x it" if program else "a program begins with #!, a collector ends in .py"
        raise InputError(f"{path}: is no plugin: {remedy}")
    classes = list(collector_classes(path, data))
    if not classes:
        raise InputError(f'{path}: defines no subclass of Collector with a line like name = "mine"')
    for class_name, name in classes:
        yield CollectorSource(
            name=name,
            kind="python",
            target=str(path),
            origin=str(path),
            class_name=class_name,
            digest=digest,
        )


def collector_classes(path: Path, data: bytes) -> Iterator[tuple[str, str]]:
    """(class, collector's name) of each collector that Python source defines at module level.

    Raises InputError with the line for invalid Python.
    """
    try:
        tree = ast.parse(data, str(path))
    except SyntaxError as error:
        raise InputError(f"{path}, line {error.lineno}: {error.msg}") from None
    except (ValueError, RecursionError, MemoryError) as error:
        raise InputError(f"{path}: is no Python: {error}") from None
    known: set[str] = set()
    for node in tree.body:
        if isinstance(node, ast.ClassDef):
            bases = {_last_name(base) for base in node.bases}
            if bases & known or any(base.endswith("Collector") for base in bases):
                known.add(node.name)
                if name := _name_in(node):
                    yield node.name, name


def _last_name(base: ast.expr) -> str:
    """``Collector`` of ``api.Collector``; empty for anything but a name."""
    if isinstance(base, ast.Attribute):
        return base.attr
    return base.id if isinstance(base, ast.Name) else ""


def _name_in(node: ast.ClassDef) -> str:
    for line in node.body:
        targets: list[ast.expr] = []
        if isinstance(line, ast.Assign):
            targets = line.targets
        elif isinstance(line, ast.AnnAssign):
            targets = [line.target]
        else:
            continue
        named = any(isinstance(target, ast.Name) and target.id == "name" for target in targets)
        if named and isinstance(line.value, ast.Constant) and isinstance(line.value.value, str):
            return line.value.value
    return ""


def _maybe(entry: os.DirEntry[str]) -> bool:
    if entry.name.startswith((".", "_")) or entry.name.endswith(("~", ".pyc", ".swp", ".part")):
        return False
    return entry.is_file()
