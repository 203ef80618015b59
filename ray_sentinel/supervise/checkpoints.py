"""The checkpoints of a supervised command: new ones, and those that it can start from."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from pathlib import Path

from ray_sentinel.clock import Clock, moment
from ray_sentinel.supervise.actions import Choose
from ray_sentinel.supervise.checkpoint_choice import Choice, Scan, choose
from ray_sentinel.supervise.events import Offered
from ray_sentinel.supervise.policy import ResumePoint
from ray_sentinel.supervise.restart_state_machine import SupervisionState


class Checkpoints:
    """The content of the checkpoint folders. All methods may block."""

    def __init__(
        self, folders: tuple[Path, ...], scan: Scan, say: Callable[[str], None], clock: Clock
    ) -> None:
        self._folders, self._scan, self._say, self._clock = folders, scan, say, clock
        self._last: ResumePoint | None = None

    def later(self, without: Collection[ResumePoint] = ()) -> ResumePoint | None:
        """A checkpoint with a later step than the last call returned, or written later; None if
        there is none."""
        found, last = self._choose(without).checkpoint, self._last
        if found is None or (last and found.step <= last.step and found.modified <= last.modified):
            return None
        self._last = found
        return found

    def saved_at(self, without: Collection[ResumePoint]) -> float | None:
        """When the best one was written; None without any."""
        found = self._choose(without).checkpoint if self._folders else None
        return found.modified if found is not None else None

    def offer(self, asked: Choose, ledger: SupervisionState) -> Offered:
        """The best checkpoint; the beginning if there never was one; otherwise why none is left."""
        found = self._choose(asked.without)
        for text in found.skipped:
            self._say(f"left out: {text}")
        for text in found.unreadable:
            self._say(f"no checkpoint is taken from {text}")
        return Offered(
            time=moment(self._clock),
            checkpoint=found.checkpoint,
            problem=lost(found, self._folders, ledger),
        )

    def _choose(self, without: Collection[ResumePoint] = ()) -> Choice:
        return choose(self._folders, without, self._scan)


def lost(found: Choice, folders: Sequence[Path], ledger: SupervisionState) -> str:
    """Why it must not start from the beginning if nothing else is left: it saved once, and a
    training that starts over would overwrite that. Empty if it may start."""
    if found.checkpoint is not None or not ledger.saved:
        return ""
    bad = [*found.skipped, *(f"{one.path} does not load" for one in ledger.left_out)]
    what = "no checkpoint is left" if bad else "the checkpoints have vanished"
    gone = [f"none is in {', '.join(map(str, folders))} any more"]
    why = [*found.unreadable, *bad] or gone
    return f"not restarted, because {what}: {'; '.join(why)}"
