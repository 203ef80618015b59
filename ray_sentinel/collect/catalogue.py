"""The collectors that are known here, by name."""

from __future__ import annotations

from ray_sentinel.collect.discovery import (
    Plugin,
    entry_points,
    plugin_files,
    read_plugin,
    untrusted_folder,
)
from ray_sentinel.collect.plugins import plugin_folder
from ray_sentinel.collect.protocol import CollectorSource
from ray_sentinel.config import Config


def plugins_of(config: Config) -> tuple[Plugin, ...]:
    """The files of the configured plugin folder; none where there is no folder.

    A folder that others may write to is told as a whole, by the ``problem`` of one for its path.
    """
    folder = plugin_folder(config)
    if why := untrusted_folder(folder):
        return (Plugin(path=folder, digest="", problem=why, untrusted=True),)
    return tuple(read_plugin(path) for path in plugin_files([folder]).values())


def known_collectors(config: Config) -> dict[str, CollectorSource]:
    """Name → source; what is installed goes before a file of the same name."""
    found = {source.name: source for plugin in plugins_of(config) for source in plugin.sources}
    found.update((source.name, source) for source in entry_points())
    return found
