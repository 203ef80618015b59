"""Ranks that ended: each is reported once, in the order of the exits, with its last progress and
last words.

Exits are learned from the kernel (``exits``), from a process that is no longer in /proc, or, if
nobody was watching, from the record that it left. The record is deleted only some time later, so an
agent that is killed in between reports the exit again when it is back (``stale``).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping

import msgspec

from ray_sentinel.model.identity import Rank
from ray_sentinel.model.progress import Exit
from ray_sentinel.progress.exits import Ended, ExitWatch
from ray_sentinel.progress.last_output import LastOutput
from ray_sentinel.progress.proc import pidfd
from ray_sentinel.progress.proc.proc_stat import Key
from ray_sentinel.progress.record_view import RecordView
from ray_sentinel.progress.stale import StaleRecords


class Followed(msgspec.Struct, kw_only=True):
    """A rank whose exit is watched for, and what was last known about it."""

    rank: Rank
    view: RecordView | None = None


class Departures:
    """Watches ranks for their exits. ``views`` returns the newest record of a process, dead or
    alive; ``outputs`` what it wrote at its end."""

    def __init__(
        self,
        exits: ExitWatch,
        stale: StaleRecords,
        views: Callable[[Key], RecordView | None],
        outputs: LastOutput,
        *,
        monotonic: Callable[[], float],
        now: Callable[[], float],
    ) -> None:
        self._exits, self._stale, self._newest = exits, stale, views
        self._outputs = outputs
        self._monotonic, self._now = monotonic, now
        self._followed: dict[Key, Followed] = {}
        self._told: set[Key] = set()
        self._order = 0

    def has_ended(self, key: Key) -> bool:
        """Whether the process ended, though it may still be in /proc."""
        return key in self._told or self._exits.has_ended(key)

    def missing(self, key: Key) -> None:
        """Record that the process is a zombie: without pidfds nothing else shows that it ended."""
        self._exits.missing((key,))

    def drain(self) -> list[Exit]:
        """The exits since the last call, in order."""
        return [
            told for ended in self._exits.drain() if (told := self._report_exit(ended)) is not None
        ]

    def follow(self, current: Mapping[Key, Followed], living: Collection[Key]) -> None:
        """Watch the ``current`` ranks, and stop watching living processes that are no longer
        ranks."""
        for key in current:
            self._exits.watch(key)
        gone = {
            key: followed
            for key, followed in self._followed.items()
            if key not in current and (key not in living or self._exits.has_ended(key))
        }
        self._exits.missing(gone)
        for key, followed in gone.items():
            followed.view = self._newest(key) or followed.view
        self._followed = {**current, **gone}
        self._outputs.forget(self._followed.keys())
        self._outputs.note(current.keys())
        self._told.intersection_update(living)

    def late(
        self,
        dead: Collection[RecordView],
        owned: Callable[[RecordView], bool],
        rank_of: Callable[[RecordView], Rank | None],
    ) -> list[Exit]:
        """Ranks that died before they were seen, by the records in ``dead``; deletes records that
        are no longer needed."""
        exits = []
        untold: Iterable[RecordView] = self._stale.unreported(
            dead, self._followed, self._monotonic(), owned
        )
        for view in untold:
            if (rank := rank_of(view)) is not None:
                at = self._now() - (self._monotonic() - view.last_sign)
                exits.append(self._exit(rank, at, None, view))
        self._stale.clean(dead, self._followed, self._monotonic())
        return exits

    def _report_exit(self, ended: Ended) -> Exit | None:
        followed = self._followed.pop(ended.key, None)
        self._told.add(ended.key)
        if followed is None:
            return None
        view = self._newest(ended.key) or followed.view
        self._stale.mark_reported(ended.key, self._monotonic())
        return self._exit(followed.rank, ended.at, ended.status, view)

    def _exit(self, rank: Rank, at: float, status: int | None, view: RecordView | None) -> Exit:
        self._order += 1
        code, signal = pidfd.describe(status)
        return Exit(
            rank=rank,
            at=at,
            order=self._order,
            code=code,
            signal=signal,
            last_words=view.progress.last_words if view else None,
            was_attached=view is not None and not view.detached,
            progress=view.progress if view else None,
            last_output=self._outputs.read((rank.process.pid, rank.process.start)) or "",
        )

    def close(self) -> None:
        """Stop the thread that waits."""
        self._exits.close()
