"""The folders of a user's plugins: their current files, each version kept as a copy of its own.

A process runs from the copy, so that a working version can be started again after its file was
replaced by a broken one. A folder on a shared file system may hang: this module is called from a
thread that may wait.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Sequence
from pathlib import Path

import msgspec

from ray_sentinel import regex as re
from ray_sentinel.collect.discovery import (
    Plugin,
    entry_points,
    plugin_files,
    read_plugin,
    untrusted_folder,
)
from ray_sentinel.collect.protocol import CollectorSource
from ray_sentinel.config import Config
from ray_sentinel.errors import InputError
from ray_sentinel.private_files import FILE_MODE
from ray_sentinel.trusted_path import check_trusted_folder
from ray_sentinel.whole_file import write_whole

# The collectors that are known here, by name.


def plugins_of(config: Config) -> tuple[Plugin, ...]:
    """The files of the configured plugin folder; none if there is no folder.

    A folder that other users may write to is reported as a whole, by the ``problem`` of one entry
    for its path.
    """
    folder = plugin_folder(config)
    if why := untrusted_folder(folder):
        return (Plugin(path=folder, problem=why, untrusted=True),)
    return tuple(read_plugin(path) for path in plugin_files([folder]).values())


def known_collectors(config: Config) -> dict[str, CollectorSource]:
    """Name → source; an installed collector wins over a file of the same name."""
    found = {source.name: source for plugin in plugins_of(config) for source in plugin.sources}
    found.update((source.name, source) for source in entry_points())
    return found


_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}\Z")

Signature = tuple[str, int, int, int, int, int, int]


def plugin_folder(config: Config) -> Path:
    """The folder of the user's plugins: ``[agent] plugin_dir``, else ``plugins`` in ``log_dir``."""
    if config.agent.plugin_dir:
        return Path(config.agent.plugin_dir).expanduser()
    return config.directory() / "plugins"


def install_plugin(folder: Path, name: str, data: bytes) -> Path:
    """Put a plugin into ``folder`` atomically; returns its path.

    A program (``#!`` or ELF) is made executable. Raises InputError for a name that is not a plain
    file name, or if the folder cannot be written, or other users may write to it too.
    """
    if not _NAME.match(name):
        raise InputError(
            f"{name!r} cannot be the name of a plugin's file: use letters, digits, ._-"
        )
    mode = stat.S_IRWXU if data.startswith((b"#!", b"\x7fELF")) else FILE_MODE
    path = folder / name
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        check_trusted_folder(folder)
        write_whole(path, data, durable=True, mode=mode)
    except OSError as error:
        raise InputError(f"{path}: cannot be written: {error.strerror}") from None
    return path


class PluginFolders:
    """Reads plugin folders repeatedly; only files that changed are read again.

    A file in a later folder replaces one of the same name in an earlier one. ``copies`` is a folder
    of our own on a local disk.
    """

    def __init__(self, folders: Sequence[Path], copies: Path) -> None:
        self._folders, self._copies = tuple(folders), copies
        self._known: dict[str, tuple[Signature, Plugin]] = {}
        self.problem = ""
        """Why the folders cannot be looked at now, for which what was there last is kept; or why
        nothing that lies in one of them is run."""

    def scan(self) -> tuple[Plugin, ...]:
        """The current plugins, in the order of their file names."""
        try:
            refused = {folder: untrusted_folder(folder) for folder in self._folders}
            files = plugin_files(folder for folder, why in refused.items() if not why)
        except OSError as error:
            self.problem = f"{error.filename}: cannot be read: {error.strerror}"
            return tuple(plugin for _, plugin in self._known.values())
        self.problem = "; ".join(filter(None, refused.values()))
        self._known = {name: self._read_changed(name, path) for name, path in files.items()}
        return tuple(plugin for _, plugin in self._known.values())

    def _read_changed(self, name: str, path: Path) -> tuple[Signature, Plugin]:
        known = self._known.get(name)
        signature = _signature(path)
        if known is not None and known[0] == signature and _copied(known[1]):
            return known
        plugin = read_plugin(path)
        if plugin.sources:
            plugin = self._kept(plugin)
        return signature, plugin

    def _kept(self, plugin: Plugin) -> Plugin:
        """The plugin with its sources pointing at a copy of this version."""
        copy = self._copies / plugin.sources[0].digest / plugin.path.name
        try:
            copy.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            if not copy.exists():
                write_whole(copy, plugin.data, mode=stat.S_IRWXU)
        except OSError as error:
            problem = f"{copy}: cannot be written: {error.strerror}"
            return msgspec.structs.replace(plugin, data=b"", sources=(), problem=problem)
        sources = tuple(
            msgspec.structs.replace(source, target=str(copy)) for source in plugin.sources
        )
        return msgspec.structs.replace(plugin, data=b"", sources=sources)


def _copied(plugin: Plugin) -> bool:
    """Whether its copies are still there: a machine that tidies /tmp may have removed them."""
    return all(os.path.exists(source.target) for source in plugin.sources)


def _signature(path: Path) -> Signature:
    try:
        info = path.stat()
    except OSError:
        return (str(path), 0, 0, 0, 0, 0, 0)
    return (
        str(path),
        info.st_mtime_ns,
        info.st_size,
        info.st_ino,
        info.st_mode,
        info.st_uid,
        info.st_gid,
    )
