"""One collector by name: the version that runs, and a new one on trial beside it.

A changed plugin is tried first: its process is started and asked once, while the running version
keeps its process but is not asked. The new one takes over only if that succeeds; otherwise the old
one continues, and the status says what was wrong with the new one.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

from ray_sentinel.collect.child_registry import ChildRecord
from ray_sentinel.collect.protocol import CollectorSource
from ray_sentinel.collect.runner_context import CollectorConfig, RunnerContext
from ray_sentinel.collect.version import Version
from ray_sentinel.model.metrics import CollectorStatus, Family


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

    def families(self) -> tuple[Family, ...]:
        """Its last good families, unless they are too old."""
        return self.current.last.families

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
