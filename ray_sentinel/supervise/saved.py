"""The checkpoints of a supervised command: which came, and which can be started from."""

from __future__ import annotations

from collections.abc import Callable, Collection
from pathlib import Path

from ray_sentinel.clock import Clock
from ray_sentinel.supervise.actions import Choose
from ray_sentinel.supervise.choose import Choice, Scan, choose
from ray_sentinel.supervise.course import Ledger
from ray_sentinel.supervise.events import Offered
from ray_sentinel.supervise.policy import Checkpoint


class Checkpoints:
    """What lies in the checkpoint folders. All methods may block."""

    def __init__(
        self, folders: tuple[Path, ...], scan: Scan, say: Callable[[str], None], clock: Clock
    ) -> None:
        self._folders, self._scan, self._say, self._clock = folders, scan, say, clock
        self._last: Checkpoint | None = None

    def later(self) -> Checkpoint | None:
        """One of a later step than any that this gave before; None where there is none."""
        found = self._choose().checkpoint
        if found is None or (self._last is not None and found.step <= self._last.step):
            return None
        self._last = found
        return found

    def saved_at(self, without: Collection[str]) -> float | None:
        """When the best one was written; None where there is none."""
        found = self._choose(without).checkpoint if self._folders else None
        return found.modified if found is not None else None

    def offer(self, asked: Choose, ledger: Ledger) -> Offered:
        """The best one; the beginning where there never was any; else why there is none left."""
        found = self._choose(asked.without)
        for text in found.skipped:
            self._say(f"left out: {text}")
        for text in found.unreadable:
            self._say(f"no checkpoint is taken from {text}")
        problem = ""
        if found.checkpoint is None and ledger.attempt > 0:
            problem = self._lost(found, asked.without, ledger)
        return Offered(time=self._clock.now(), checkpoint=found.checkpoint, problem=problem)

    def _lost(self, found: Choice, without: frozenset[str], ledger: Ledger) -> str:
        if without:
            return f"none of {len(without)} checkpoints loads: {', '.join(sorted(without))}"
        if found.unreadable and (ledger.checkpoint or self._last):
            why = "; ".join(found.unreadable)
            return f"not restarted, because the checkpoints have vanished: {why}"
        return ""

    def _choose(self, without: Collection[str] = ()) -> Choice:
        return choose(self._folders, without, self._scan)
