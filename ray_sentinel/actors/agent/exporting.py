"""The exporters of this node: found by entry point, made from the configuration, fed together."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from functools import partial
from importlib import metadata
from typing import Any
from urllib.parse import urlsplit

import msgspec

from ray_sentinel.actors.loops import Newest
from ray_sentinel.api import Exporter
from ray_sentinel.bounded import within
from ray_sentinel.config import Config, convert
from ray_sentinel.errors import ConfigError, SentinelError
from ray_sentinel.model.metrics import Family

log = logging.getLogger(__name__)

GROUP = "ray_sentinel.exporters"
_TELLING = (SentinelError, ImportError, AttributeError, OSError)
"""Errors whose text says enough; for others the name of their class is shown too."""
MOST_NOTES = 20
"""Most different failures that are shown and logged; later ones are dropped."""


CLOSE_SECONDS = 2.0
"""Seconds that an exporter has to stop."""


class Exporting:
    """All exporters of a node. ``notes`` report one that fails; the others go on.

    Each receives what is published on a thread of its own: one that hangs misses later updates, and
    delays nobody.
    """

    def __init__(
        self,
        config: Config,
        host: str,
        address: str,
        points: Iterable[metadata.EntryPoint] | None = None,
    ) -> None:
        self._notes: list[str] = []
        self.exporters: list[Exporter] = []
        self._hands: dict[int, Newest[tuple[Family, ...]]] = {}
        """What hands the newest families to each exporter, by the exporter's ``id``."""
        found = metadata.entry_points(group=GROUP) if points is None else points
        unique = {point.name: point for point in found}
        for name, point in sorted(unique.items()):
            try:
                self.exporters += self._made(name, point, config, host, address)
            except Exception as error:  # plugin code: the others are made, and the agent starts
                log.debug("exporter %s cannot be made", name, exc_info=True)
                kind = "" if isinstance(error, _TELLING) else f"{type(error).__name__}: "
                self._note(f"exporter {name}: {kind}{error}")

    def _made(
        self, name: str, point: metadata.EntryPoint, config: Config, host: str, address: str
    ) -> tuple[Exporter, ...]:
        """The exporter, as a tuple; empty if it is off."""
        kind: type[Exporter] = point.load()
        options = options_for(name, kind, config)
        if options is None:
            return ()
        exporter = kind(host, address, options)
        exporter.start()
        self._note_port(exporter, config.agent.port)
        return (exporter,)

    def _note_port(self, exporter: Exporter, wanted: int) -> None:
        place = urlsplit(exporter.url)
        if wanted and place.port not in (None, wanted):
            self._note(
                f"port {wanted} of {place.hostname} is taken: metrics are on port {place.port}, "
                "which /sd advertises"
            )

    def _failed(self, exporter: Exporter, error: Exception) -> None:
        note = f"exporter {exporter.name} failed: {type(error).__name__}: {error}"
        # It may fail in the same way each second.
        if note not in self._notes and len(self._notes) < MOST_NOTES:
            log.warning("exporter %s failed", exporter.name, exc_info=error)
            self._notes.append(note)

    def _note(self, note: str) -> None:
        log.warning("%s", note)
        self._notes.append(note)

    @property
    def notes(self) -> list[str]:
        """Problems for people: exporters that failed, and what is wrong with one now."""
        problems = (str(getattr(exporter, "problem", "")) for exporter in self.exporters)
        return [*self._notes, *filter(None, problems)]

    @property
    def url(self) -> str:
        """The URL at which metrics can be scraped on this node; empty if nothing serves them."""
        return next((exporter.url for exporter in self.exporters if exporter.url), "")

    @property
    def handed_on(self) -> float | None:
        """When samples with a time of their own were last read, on the monotonic clock."""
        moments = [getattr(exporter, "handed_on", None) for exporter in self.exporters]
        return max((moment for moment in moments if moment is not None), default=None)

    def publish(self, families: Iterable[Family]) -> None:
        """Hand the families to all exporters. Never waits."""
        families = tuple(families)
        for exporter in self.exporters:
            if id(exporter) not in self._hands:
                # Plugin code: the other exporters and the watch go on.
                failed = partial(self._failed, exporter)
                name = f"ray-sentinel-export-{exporter.name}"
                self._hands[id(exporter)] = Newest(exporter.publish, name=name, failed=failed)
            self._hands[id(exporter)].offer(families)

    def add_route(self, path: str, content_type: str, body: Callable[[], bytes]) -> None:
        """Make the exporters that serve HTTP serve ``path`` too."""
        for exporter in self.exporters:
            add: Any = getattr(exporter, "add_route", None)
            if add is not None:
                add(path, content_type, body)

    def close(self) -> None:
        """Stop serving and sending."""
        for hand in self._hands.values():
            hand.stop()
        for exporter in self.exporters:
            try:
                within(CLOSE_SECONDS, exporter.close)
            except Exception as error:  # noqa: BLE001 - plugin code: the others still end
                self._failed(exporter, error)
        self.exporters = []


def options_for(name: str, kind: type[Exporter], config: Config) -> Any:
    """The exporter's options, or None if it is off. Raises ConfigError.

    Its table may contain ``enabled = false``. An exporter without a table is on if its options have
    defaults. ``port``, ``public`` and ``web_config_file`` of ``[agent]`` are the defaults of
    options of these names.
    """
    table = dict(config.exporters.get(name, {}))
    if not table.pop("enabled", True):
        return None
    fields = {field.name for field in msgspec.structs.fields(kind.Options)}
    agent = config.agent
    given = {
        "port": agent.port,
        "public": agent.public,
        "web_config_file": agent.web_config_file,
    }
    defaults = {key: value for key, value in given.items() if key in fields}
    try:
        return convert({**defaults, **table}, kind.Options, where=f"[exporters.{name}]")
    except ConfigError:
        if name in config.exporters:
            raise
        return None
