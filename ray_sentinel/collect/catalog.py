"""The collectors that are known here, by name."""

from __future__ import annotations

from ray_sentinel.collect.discovery import Plugin, entry_points, plugin_files, read_plugin
from ray_sentinel.collect.plugins import plugin_folder
from ray_sentinel.collect.protocol import Source
from ray_sentinel.config import Config


def plugins_of(config: Config) -> tuple[Plugin, ...]:
    """The files of the configured plugin folder; none where there is no folder."""
    return tuple(read_plugin(path) for path in plugin_files([plugin_folder(config)]).values())


def known_collectors(config: Config) -> dict[str, Source]:
    """Name → source; what is installed goes before a file of the same name."""
    found = {source.name: source for plugin in plugins_of(config) for source in plugin.sources}
    found.update((source.name, source) for source in entry_points())
    return found
