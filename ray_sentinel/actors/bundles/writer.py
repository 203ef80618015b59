"""Writes bundles to a disk that may hang: one thread writes, the others wait for a deadline.

An incident goes on without its bundle: what is late waits in memory, up to ``WAITING_BYTES``, is
written when the disk answers again, and is reported then. A failed write, on a full disk for
example, is tried again.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import OrderedDict, deque
from collections.abc import Callable, Mapping
from pathlib import Path

from ray_sentinel.actors.bundles.bundle import Written
from ray_sentinel.actors.bundles.index import Bundles
from ray_sentinel.model.incident import Incident

log = logging.getLogger(__name__)

STORE_SECONDS = 10.0
"""Seconds to store the files of a capture; after that the capture counts as done, with or without
them."""
PUBLISH_SECONDS = 1.0
"""Seconds to write an incident's report; after that it is announced all the same."""
HANGS_SECONDS = 5.0
"""Seconds after which an unfinished write is reported."""
RETRY_SECONDS = 30.0
"""Seconds until the next attempt after a bundle could not be written."""
WAITING_BYTES = 256 << 20
"""Most bytes of files that wait to be written; what comes beyond that is dropped, and reported."""
MOST_PROBLEMS = 20
"""Most incidents whose problems are remembered."""

Done = tuple[Path | None, list[str]]
"""An incident's folder (None where it could not be made), and what could not be written."""


class _Task:
    """One thing to be written: files, or where there are none, the report of an incident."""

    def __init__(
        self,
        incident: Incident,
        files: Mapping[str, bytes] | None,
        told: bool = False,
    ) -> None:
        self.incident, self.files, self.told = incident, files, told
        self.size = sum(map(len, files.values())) if files is not None else 0
        self.done = threading.Event()
        self.late = False
        """Whether nobody waits for it any more."""
        self.overtaken = False
        """Whether it is a report, and a newer one of its incident came while it was written."""
        self.result: Done = (None, [])


class BundleWriter:
    """Any thread may call; calls wait for ``seconds`` at most, and not at all while a write hangs.

    ``late`` is called, on the writer's thread, with the incident and the folder of files that were
    written when their caller had gone on.
    """

    def __init__(
        self,
        bundles: Bundles,
        late: Callable[[Incident, Path], None] = lambda incident, folder: None,
        *,
        seconds: float = STORE_SECONDS,
        retry_seconds: float = RETRY_SECONDS,
    ) -> None:
        self._bundles, self._late = bundles, late
        self.seconds, self.retry_seconds = seconds, retry_seconds
        self.most_bytes = WAITING_BYTES
        self._change = threading.Condition()
        self._tasks: deque[_Task] = deque()
        self._failed: list[_Task] = []
        self._again_at = 0.0
        self._writes: _Task | None = None
        self._since = 0.0
        self._overdue = False
        """Whether somebody has waited in vain for what is being written now."""
        self._closed = False
        self._problems: OrderedDict[tuple[str, bool], str] = OrderedDict()
        """What could not be written, by incident, and whether it was its files or its report."""
        self._thread: threading.Thread | None = None

    def store(self, incident: Incident, files: Mapping[str, bytes], *, told: bool = True) -> Done:
        """Put files into the incident's folder: see ``Bundles.store``. ``told``: call ``late`` if
        they are written later."""
        task = _Task(incident, files, told)
        with self._change:
            if self._waiting_bytes() + task.size > max(self.most_bytes, task.size):
                why = (
                    f"incident {incident.id}: {len(files)} files ({task.size >> 20} MiB) were "
                    f"dropped: {self._bundles.root} does not take what waits for it"
                )
                self._note(task, [why])
                return None, [why]
            self._put(task)
        if self._ended(task, self.seconds):
            return task.result
        return None, [
            f"the bundle is not written yet: {self._bundles.root} has not answered for "
            f"{time.monotonic() - self._since:.0f} s; it is written when it does"
        ]

    def publish(self, incident: Incident) -> Path | None:
        """Write the incident and its report in their current state. Returns its folder, if
        known."""
        task = _Task(incident, None)
        with self._change:
            # Only the newest of an incident that waits is written.
            for older in [t for t in (*self._tasks, *self._failed) if _same_report(t, incident)]:
                (self._tasks if older in self._tasks else self._failed).remove(older)
                older.done.set()
            if self._writes is not None and _same_report(self._writes, incident):
                self._writes.overtaken = True
            self._put(task)
        if self._ended(task, min(PUBLISH_SECONDS, self.seconds)):
            return task.result[0]
        return self._bundles.known(incident.id)

    @property
    def waiting(self) -> int:
        """How many files and reports are not written yet."""
        with self._change:
            return len(self._tasks) + len(self._failed) + (self._writes is not None)

    @property
    def notes(self) -> tuple[str, ...]:
        """Problems for people: what could not be written, and where."""
        with self._change:
            # One line for an incident is enough.
            said = list({key[0]: text for key, text in self._problems.items()}.values())
            writes = self._writes
            if writes is not None and time.monotonic() - self._since > HANGS_SECONDS:
                wait = dict.fromkeys(task.incident.id for task in (writes, *self._tasks))
                size = self._waiting_bytes() >> 20
                said.append(
                    f"{self._bundles.root} does not answer: the bundles of incidents "
                    f"{', '.join(wait)} wait for it in memory ({size} MiB)"
                )
        return tuple(said)

    def close(self, seconds: float = 2.0) -> None:
        """Write what is waiting, for at most this many seconds."""
        with self._change:
            self._closed = True
            self._change.notify_all()
            thread = self._thread
        if thread is not None:
            thread.join(seconds)

    def _put(self, task: _Task) -> None:
        self._tasks.append(task)
        if self._thread is None:
            self._thread = threading.Thread(
                target=self._run, name="ray-sentinel-bundles", daemon=True
            )
            self._thread.start()
        self._change.notify_all()

    def _waiting_bytes(self) -> int:
        writes = self._writes.size if self._writes is not None else 0
        return writes + sum(task.size for task in (*self._tasks, *self._failed))

    def _ended(self, task: _Task, seconds: float) -> bool:
        end = time.monotonic() + seconds
        while not task.done.wait(0.0 if self._overdue else max(0.0, end - time.monotonic())):
            with self._change:
                if task.done.is_set():
                    return True
                if self._overdue or time.monotonic() >= end:
                    task.late = True
                    self._overdue = self._writes is not None
                    return False
        return True

    def _run(self) -> None:
        while (task := self._next()) is not None:
            try:
                written, retry = self._written(task), self._bundles.root is not None
            except Exception as error:  # a bundle that fails must not end all that come after it
                log.exception("incident %s: its bundle failed", task.incident.id)
                why = f"the bundle failed: {type(error).__name__}: {error}"
                written, retry = Written(None, [why], {}), False
            with self._change:
                self._writes, self._overdue = None, False
                self._note(task, written.problems)
                late = task.late
                failed = written.folder is None or bool(written.left)
                if failed and retry:
                    self._try_again(task, written)
                task.result = (written.folder, written.problems)
                task.done.set()
            if late and task.told and written.folder is not None and not failed:
                self._notify_late(task.incident, written.folder)

    def _try_again(self, task: _Task, written: Written) -> None:
        """Queue what is still to be written: the rest of files that were written in part,
        everything else unchanged. An overtaken report is dropped, because it would overwrite the
        newer one."""
        if task.overtaken:
            return
        if written.left and task.files is not None:
            task = _Task(task.incident, written.left, told=task.told)
        task.late = True
        self._failed.append(task)
        self._again_at = time.monotonic() + self.retry_seconds

    def _next(self) -> _Task | None:
        with self._change:
            while not self._tasks:
                if self._closed:
                    return None
                if not self._failed:
                    self._change.wait()
                elif not self._change.wait(max(0.0, self._again_at - time.monotonic())):
                    self._tasks.extend(self._failed)
                    self._failed.clear()
            self._writes, self._since = self._tasks.popleft(), time.monotonic()
            return self._writes

    def _written(self, task: _Task) -> Written:
        if task.files is not None:
            return self._bundles.store(task.incident, task.files)
        return self._bundles.publish(task.incident)

    def _note(self, task: _Task, problems: list[str]) -> None:
        key = (task.incident.id, task.files is None)
        self._problems.pop(key, None)
        if problems:
            self._problems[key] = f"incident {task.incident.id}: {problems[0]}"
            while len(self._problems) > MOST_PROBLEMS:
                self._problems.popitem(last=False)

    def _notify_late(self, incident: Incident, folder: Path) -> None:
        try:
            self._late(incident, folder)
        except Exception:  # a failing callback must not end the writing
            log.exception("incident %s: its late bundle could not be told", incident.id)


def _same_report(task: _Task, incident: Incident) -> bool:
    return task.files is None and task.incident.id == incident.id
