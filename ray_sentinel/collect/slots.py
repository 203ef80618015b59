"""All collectors of a node by name. Follows the plugin folders, and records which collector owns
which metric. Called on the runner's thread only.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from ray_sentinel.collect.child_registry import ChildRecord
from ray_sentinel.collect.discovery import Plugin
from ray_sentinel.collect.protocol import CollectorSource
from ray_sentinel.collect.runner_context import CollectorConfig, RunnerContext, collector_config
from ray_sentinel.collect.version import Version
from ray_sentinel.errors import ConfigError
from ray_sentinel.model.metrics import CollectorStatus, Family

# Ownership of metrics: the first collector that yields one owns it. Pure.
#
# A family of one name has one meaning, so a second owner is refused. Collectors of one installed
# package share (a card of either vendor has the same metrics), and what is installed goes before
# what lies in a plugin folder. A name is free again when its owner serves nothing any more.

OURS = "ray_sentinel_"
"""Prefix of the names of metrics about the monitor itself."""
RUNNER_METRICS = frozenset({"hw_scrape_duration_seconds"})


def _party(source: CollectorSource) -> tuple[bool, str]:
    """Whether a collector is installed, and its name, or that of its package."""
    installed = source.kind == "entry-point"
    return installed, (source.origin if installed else "") or source.name


class Owners:
    """Metric name → its owner."""

    def __init__(self) -> None:
        self._owners: dict[str, tuple[tuple[bool, str], set[str]]] = {}

    def claim(self, source: CollectorSource, metrics: Iterable[str]) -> None:
        """The collector yields ``metrics``: make it the owner of those that are free, and of no
        others."""
        self.release(source.name)
        party = installed, _ = _party(source)
        for metric in metrics:
            if metric.startswith(OURS) or metric in RUNNER_METRICS:
                continue
            held = self._owners.get(metric)
            if held is None or (installed and not held[0][0]):
                self._owners[metric] = (party, {source.name})
            elif held[0] == party:
                held[1].add(source.name)

    def release(self, collector: str) -> None:
        """The collector yields nothing any more: free its metrics."""
        for metric, (_, names) in list(self._owners.items()):
            names.discard(collector)
            if not names:
                del self._owners[metric]

    def owner(self, metric: str) -> str:
        """The names of the collectors that own ``metric``, for people; empty if it is free."""
        if metric.startswith(OURS) or metric in RUNNER_METRICS:
            return "the agent itself"
        held = self._owners.get(metric)
        return ", ".join(sorted(held[1])) if held is not None else ""

    def may_serve(self, collector: str, metric: str) -> bool:
        """Whether the collector owns ``metric``."""
        held = self._owners.get(metric)
        return held is not None and collector in held[1]


# One collector by name: the version that runs, and a new one on trial beside it.
#
# A changed plugin is tried first: its process is started and asked once, while the running version
# keeps its process but is not asked. The new one takes over only if that succeeds; otherwise the
# old one continues, and the status says what was wrong with the new one.


class CollectorSlot:
    """A collector, whichever version of it runs."""

    def __init__(
        self,
        source: CollectorSource,
        settings: CollectorConfig,
        around: RunnerContext,
        leftovers: tuple[ChildRecord, ...] = (),
        wait: float = 0.0,
    ) -> None:
        self.name = source.name
        self.current = Version(source, settings, around, leftovers, wait)
        self.candidate: Version | None = None
        self.note = ""
        """What is wrong with the newest version of its file, while an older one runs."""
        self.refused: tuple[str, ...] = ()
        """Families that it yields and must not serve, and who owns them."""
        self._settings, self._around = settings, around
        self._retired: list[Version] = []
        self._timeouts = self._restarts = 0
        """Counts of versions that ended: the sums never fall."""
        self._tried_digest = source.digest
        self._waiting: CollectorSource | None = None
        """To be tried once the old one's process can be killed."""
        self._leaving = False

    @property
    def at(self) -> float:
        """When ``step`` has something to do (monotonic seconds)."""
        current = self.current.at
        if self.candidate is not None and self.current.schedule.phase == "ready":
            current = math.inf
        return min([current, *(version.at for version in self._others())])

    @property
    def finished(self) -> bool:
        """Whether it was retired, and nothing of it is left."""
        return self._leaving and self.current.finished and not self._retired

    def step(self, now: float) -> bool:
        """Do what is due. Returns True if something has changed since the last call."""
        self.current.step(now, may_ask=self.candidate is None)
        for version in self._others():
            version.step(now)
        changed = any(version.changed for version in self._versions())
        for version in self._versions():
            version.changed = False
        if self.candidate is not None and self.candidate.judgeable:
            self._judge(self.candidate, now)
            changed = True
        self._retired = [version for version in self._retired if not version.finished]
        return self._try_waiting(now) or changed

    def _try_waiting(self, now: float) -> bool:
        source = self._waiting
        if source is None or self._leaving or self.current.schedule.unkillable:
            return False
        self._tried_digest = ""
        self.reload(source, now)
        return True

    def reload(self, source: CollectorSource, now: float) -> None:
        """Try a new version of the file, once."""
        self._waiting = None
        if source.digest == self.current.source.digest and self.candidate is None:
            self._tried_digest, self.note = source.digest, ""
            return
        if source.digest == self._tried_digest:
            return
        self._tried_digest, self.note = source.digest, ""
        if self.candidate is not None:
            self._retire(self.candidate, now)
            self.candidate = None
        if self.current.schedule.unkillable:
            self.note = "the new version waits until the old one's process can be killed"
            self._waiting = source
            return
        version = Version(source, self._settings, self._around)
        if self.current.last.success:
            version.held_events = []
            self.candidate = version
        else:
            self._replace(version, now)

    def retire(self, now: float) -> None:
        """End it for good; ``finished`` says when that is complete."""
        self._leaving = True
        for version in self._versions():
            version.retire(now)
        if self.candidate is not None:
            self._retired.append(self.candidate)
            self.candidate = None

    def status(self) -> CollectorStatus:
        """Its status."""
        current, schedule = self.current, self.current.schedule
        messages = (self.note, current.message(), *self.refused)
        return CollectorStatus(
            name=self.name,
            state=schedule.state,
            success=current.last.success,
            seconds=current.last.seconds,
            last_success=current.last.last_success,
            timeouts=self._timeouts + schedule.timeouts,
            restarts=self._restarts + schedule.restarts,
            unkillable=sum(version.schedule.unkillable for version in self._versions()),
            message="; ".join(message for message in messages if message),
            interval=schedule.timing.interval,
        )

    def _judge(self, candidate: Version, now: float) -> None:
        self.candidate = None
        if candidate.last.success is False:
            why = candidate.message() or candidate.last.error or "its process has ended"
            self.note = f"the new version does not work, the one before goes on: {why}"
            self.current.log(f"[runner] {self.note}")
            self._retire(candidate, now)
            return
        self.current.log("[runner] the new version takes over")
        candidate.last.inherit(self.current.last)
        self._replace(candidate, now)

    def _replace(self, version: Version, now: float) -> None:
        self._retire(self.current, now)
        self._restarts += 1
        self.current = version
        version.release_events()

    def _retire(self, version: Version, now: float) -> None:
        self._timeouts += version.schedule.timeouts
        self._restarts += version.schedule.restarts
        version.retire(now)
        self._retired.append(version)

    def _others(self) -> Iterator[Version]:
        if self.candidate is not None:
            yield self.candidate
        yield from self._retired

    def _versions(self) -> Iterator[Version]:
        yield self.current
        yield from self._others()


class Slots:
    """The collectors. ``tables`` is ``[collectors]`` of the configuration."""

    def __init__(self, around: RunnerContext, tables: Mapping[str, Mapping[str, Any]]) -> None:
        self._around, self._tables = around, tables
        self.leftovers: list[ChildRecord] = []
        """Processes of an earlier runner that cannot be killed: their collectors wait for them."""
        self.plugins_from = 0.0
        """Plugin files are started from then on (monotonic seconds), after what is installed: so a
        name that both yield is never served by the wrong one."""
        self._slots: dict[str, CollectorSlot] = {}
        self._leaving: list[CollectorSlot] = []
        self._owners = Owners()
        self._problems: dict[str, str] = {}
        """Why a table of the configuration cannot be used, by collector."""
        self._file_problems: dict[str, str] = {}
        """Why a plugin's file cannot be used, by its path."""
        self.refused_files: tuple[str, ...] = ()
        """Why files and folders of plugins are not trusted."""

    @property
    def at(self) -> float:
        """When ``step`` has something to do (monotonic seconds)."""
        return min((slot.at for slot in self._all()), default=float("inf"))

    @property
    def empty(self) -> bool:
        """Whether nothing runs, and nothing is being ended."""
        return not self._slots and not self._leaving

    def step(self, now: float) -> bool:
        """Do what is due. Returns True if something has changed."""
        changed = [slot for slot in self._slots.values() if slot.step(now)]
        for slot in self._leaving:
            slot.step(now)
        self._leaving = [slot for slot in self._leaving if not slot.finished]
        for slot in changed:
            names = [family.metric.name for family in slot.current.last.families]
            self._owners.claim(slot.current.source, names)
        for slot in self._slots.values() if changed else ():
            slot.refused = tuple(self._refused(slot))
        return bool(changed)

    def add(self, source: CollectorSource, wait: float = 0.0) -> None:
        """Run a collector, after ``wait`` seconds, unless the configuration disables it."""
        settings = self._settings(source.name)
        if settings is not None and settings.enabled:
            left = tuple(record for record in self.leftovers if record.name == source.name)
            self._slots[source.name] = CollectorSlot(source, settings, self._around, left, wait)

    def retire(self, now: float) -> None:
        """End all of them; ``empty`` says when that is complete."""
        for slot in list(self._slots.values()):
            self._remove(slot, now)

    def families(self) -> Iterator[Family]:
        """The families that may be served."""
        for slot in self._slots.values():
            for family in slot.current.last.families:
                if self._owners.may_serve(slot.name, family.metric.name):
                    yield family

    def statuses(self) -> tuple[CollectorStatus, ...]:
        """The status of every collector, by name, including those that cannot be used."""
        broken = (
            CollectorStatus(name=name, state="quarantined", success=False, message=problem)
            for name, problem in {**self._problems, **self._file_problems}.items()
        )
        found = [*(slot.status() for slot in self._slots.values()), *broken]
        return tuple(sorted(found, key=lambda status: status.name))

    def update_plugins(self, plugins: Iterable[Plugin], problem: str, now: float) -> None:
        """Set the current content of the plugin folders; ``problem`` says why they cannot be
        read."""
        self._file_problems = {os.sep: problem} if problem else {}
        plugins = tuple(plugins)
        refused = (plugin.problem for plugin in plugins if plugin.untrusted)
        self.refused_files = (*filter(None, [problem]), *refused)
        wanted: dict[str, CollectorSource] = {}
        broken = set()
        for plugin in plugins:
            if plugin.problem:
                broken.add(str(plugin.path))
                self._blame(plugin)
            for source in plugin.sources:
                self._want(source, wanted)
        for name, slot in list(self._slots.items()):
            source = slot.current.source
            installed = source.kind == "entry-point"
            if not installed and name not in wanted and source.origin not in broken:
                self._remove(slot, now)
        for name, source in wanted.items():
            if name in self._slots:
                self._slots[name].reload(source, now)
            else:
                self.add(source, max(0.0, self.plugins_from - now))
        for name in self._tables.keys() - self._slots.keys() - self._problems.keys():
            self._blame_table(name)

    def _all(self) -> Iterator[CollectorSlot]:
        yield from self._slots.values()
        yield from self._leaving

    def _refused(self, slot: CollectorSlot) -> Iterator[str]:
        for family in slot.current.last.families:
            metric = family.metric.name
            if not self._owners.may_serve(slot.name, metric):
                yield f"{metric} is served by {self._owners.owner(metric)}, so not from here"

    def _settings(self, name: str) -> CollectorConfig | None:
        try:
            return collector_config(name, self._tables)
        except ConfigError as error:
            self._problems[name] = str(error)
            return None

    def _want(self, source: CollectorSource, wanted: dict[str, CollectorSource]) -> None:
        held = self._slots.get(source.name)
        other = wanted.get(source.name)
        if other is None and held is not None and held.current.source.kind == "entry-point":
            other = held.current.source
        if other is None:
            wanted[source.name] = source
            return
        self._file_problems[source.origin] = (
            f"{source.origin}: {source.name} is the name of a collector of {other.origin} already; "
            "give it another"
        )

    def _blame(self, plugin: Plugin) -> None:
        """A file cannot be used: say so where its older version runs, else by itself."""
        path = str(plugin.path)
        running = [slot for slot in self._slots.values() if slot.current.source.origin == path]
        for slot in running:
            slot.note = f"the version before goes on: {plugin.problem}"
        if not running:
            self._file_problems[path] = plugin.problem

    def _blame_table(self, name: str) -> None:
        settings = self._settings(name)
        if settings is not None and settings.enabled:
            known = ", ".join(sorted(self._slots)) or "none"
            self._file_problems[f"[collectors.{name}]"] = (
                f"[collectors.{name}] of the configuration: there is no such collector; "
                f"there are: {known}"
            )

    def _remove(self, slot: CollectorSlot, now: float) -> None:
        del self._slots[slot.name]
        self._owners.release(slot.name)
        slot.retire(now)
        self._leaving.append(slot)
