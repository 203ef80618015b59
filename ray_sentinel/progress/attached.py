"""Matches records with the living processes that wrote them.

A record counts for the process that its header names, if it was made in this boot and in this PID
namespace, by the same user as the process's. It stops counting when the rank detaches, and when the
process calls ``exec``: the program that wrote it is gone, though the process lives.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from pathlib import Path

from ray_sentinel.progress.proc.proc_stat import Key
from ray_sentinel.progress.proc.process_memory import ProcessMemory
from ray_sentinel.progress.proc.processes import Process
from ray_sentinel.progress.record_view import RecordView

UNSTAMPED = 5.0
"""Seconds without a stamp after which we check whether the writer's program still runs."""


class Attached:
    """Tracks the records that count, from one scan to the next."""

    def __init__(self, proc: Path = Path("/proc"), memory: ProcessMemory | None = None) -> None:
        self._proc = proc
        self._memory = memory or ProcessMemory(proc)
        self._asked: dict[RecordView, float] = {}
        self._left: set[RecordView] = set()
        self._named: set[Path] = set()
        self.problems: list[str] = []
        self.latest: dict[Key, RecordView] = {}
        """The last record of each process, counting or not: its last words may matter."""

    def update(
        self, views: Iterable[RecordView], table: Mapping[int, Process], now: float
    ) -> dict[Key, RecordView]:
        """The records that count, by process; ``now`` is in CLOCK_MONOTONIC seconds."""
        views = tuple(views)
        self._named.intersection_update(view.path for view in views)
        views = [view for view in views if self._is_of_this_machine(view)]
        # A process that attached again, perhaps under another name, has several.
        views.sort(key=lambda view: view.header.made_monotonic)
        self.latest = {view.key: view for view in views}
        self._asked = {view: at for view, at in self._asked.items() if view in views}
        self._left.intersection_update(views)
        return {
            key: view
            for key, view in self.latest.items()
            if key[0] in table
            and table[key[0]].start == key[1]
            and not view.detached
            and view.identity is not None
            and self._is_of_its_user(view)
            and not self._was_left(view, now)
        }

    def _is_of_this_machine(self, view: RecordView) -> bool:
        if view.this_boot and not view.this_namespace:
            self._name(view, "is of a process in another PID namespace; its own agent must read it")
        return view.this_boot and view.this_namespace

    def _is_of_its_user(self, view: RecordView) -> bool:
        if view.owner == os.geteuid():
            return True
        try:
            owner = os.stat(self._proc / str(view.header.pid)).st_uid
        except OSError:
            return False
        if owner != view.owner:
            self._name(view, f"belongs to user {view.owner}, its process to user {owner}")
        return owner == view.owner

    def _was_left(self, view: RecordView, now: float) -> bool:
        """Whether the process no longer maps the record although it never let go of it."""
        if view in self._left:
            return True
        silent = now - view.last_sign
        if view.words is not None or silent < UNSTAMPED:
            return False
        if now - self._asked.get(view, 0.0) < UNSTAMPED:
            return False
        self._asked[view] = now
        task = self._proc / str(view.header.pid) / "task" / str(view.companion_tid)
        if view.companion_tid and task.exists():
            return False
        maps = self._memory.maps([view.key]).get(view.key)
        if maps and os.fsencode(view.path.name) not in maps:
            self._left.add(view)
            return True
        return False

    def _name(self, view: RecordView, what: str) -> None:
        if view.path not in self._named:
            self._named.add(view.path)
            self.problems.append(f"{view.path}: {what}; it is left alone")
