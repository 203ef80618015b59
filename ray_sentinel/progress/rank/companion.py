"""The thread in the rank that stamps "the interpreter runs" and answers a reader's requests.

It sleeps in ``clock_nanosleep`` and wakes to take the interpreter lock, so its state shows from
outside why a stamp is old: in a futex it waits for the lock, runnable it waits for a CPU. Answering
may take long, so that is done by a thread of its own, one at a time.
"""

from __future__ import annotations

import logging
import os
import threading
import time

from ray_sentinel.progress import record
from ray_sentinel.progress.directory import write_whole
from ray_sentinel.progress.rank import answers, watchdog, who
from ray_sentinel.progress.rank.autostep import AutoStep
from ray_sentinel.progress.rank.writer import ProgressWriter
from ray_sentinel.progress.requests import (
    ANSWERS,
    ERROR_ANSWER,
    STACKS_ANSWER,
    WATCHDOG_ANSWER,
    ProgressRequest,
    answer_name,
    unpack_request,
)

log = logging.getLogger(__name__)

INTERVAL = record.STAMP_INTERVAL
"""Seconds between two stamps; a stamp takes a few microseconds."""


_LIBRARY_ERRORS = (
    ImportError, AttributeError, LookupError, TypeError, ValueError, AssertionError, RuntimeError,
    OSError,
)  # fmt: skip
"""What libraries raise that are half imported or being torn down, and what a process raises that
may start no more threads. Stamps go on."""


class Companion:
    """The companion of one writer."""

    def __init__(self, writer: ProgressWriter, *, interval: float = INTERVAL) -> None:
        self._writer = writer
        self._interval = interval
        self._ended = False
        self._failed = False
        self._request = writer.number(record.REQUEST_OFFSET)
        self._answering: threading.Thread | None = None
        self.watchdog: watchdog.Watchdog | None = None
        self._rearm_at = 0.0
        self._autostep = AutoStep(writer)
        self._thread = threading.Thread(
            target=self._run, name="ray-sentinel-companion", daemon=True
        )

    def start(self) -> None:
        """Begin to stamp."""
        if watchdog.ptrace_is_forbidden():
            self._watch()
        self._thread.start()

    def stop(self) -> None:
        """Ask the thread to end after its next wake-up; does not wait for it."""
        self._ended = True
        self._autostep.stop()
        if self.watchdog is not None:
            self.watchdog.close()
            self.watchdog = None

    def _run(self) -> None:
        writer = self._writer
        writer.set_number(record.COMPANION_TID_OFFSET, threading.get_native_id())
        while not self._ended and writer.attached:
            try:
                writer.stamp()
                request = writer.number(record.REQUEST_OFFSET)
            except ValueError:
                # The record was closed between two instructions of this thread.
                return
            self._serve(request)
            time.sleep(self._interval)

    def _serve(self, request: int) -> None:
        try:
            if request != self._request and self._idle():
                self._answer(request)
            self._tick()
        except _LIBRARY_ERRORS:
            if not self._failed:
                log.warning("the companion of the progress record failed", exc_info=True)
            self._failed = True

    def _idle(self) -> bool:
        return self._answering is None or not self._answering.is_alive()

    def _tick(self) -> None:
        self._autostep.poll()
        if self._writer.identity.assumed:
            self._ask_again()
        # Taken once: ``stop`` may take it away meanwhile.
        armed = self.watchdog
        if armed is not None and time.monotonic() >= self._rearm_at:
            self._rearm_at = time.monotonic() + watchdog.REARM
            armed.arm()

    def _ask_again(self) -> None:
        told = self._writer.identity
        known = who.resolve(None if told.job == who.DEFAULT_JOB else told.job)
        if not known.assumed:
            self._writer.identify(known)

    def _answer(self, request: int) -> None:
        self._request = request
        _, wishes = unpack_request(request)
        if ProgressRequest.WATCHDOG_ON in wishes:
            self._watch()
        if ProgressRequest.WATCHDOG_OFF in wishes and self.watchdog is not None:
            self.watchdog.close()
            self.watchdog = None
            self._writer.set_number(record.WATCHDOG_OFFSET, 0)
        self._answering = threading.Thread(
            target=self._deliver,
            args=(request, wishes),
            name="ray-sentinel-answer",
            daemon=True,
        )
        self._answering.start()

    def _watch(self) -> None:
        path = self._writer.path
        if self.watchdog is not None or path is None:
            return
        try:
            name = answer_name(path.name, WATCHDOG_ANSWER)
            self.watchdog = watchdog.Watchdog(self._writer.directory, name)
        except (OSError, RuntimeError) as error:
            log.warning("no stacks can be left while the interpreter is held: %s", error)
            return
        self._rearm_at = time.monotonic() + watchdog.REARM
        self._writer.set_number(record.WATCHDOG_OFFSET, 1)

    def _deliver(self, request: int, wishes: ProgressRequest) -> None:
        path, folder = self._writer.path, self._writer.directory
        if path is None or folder < 0:
            return
        found: dict[str, bytes] = {}
        problems: list[str] = []
        if ProgressRequest.STACKS in wishes:
            found[STACKS_ANSWER] = answers.stacks()
        if ProgressRequest.FLIGHT_RECORDER in wishes:
            try:
                found.update(answers.flight_recorder())
            except answers.AnswerError as error:
                problems.append(str(error))
        self._clear(path.name, folder)
        try:
            for answer, data in found.items():
                write_whole(folder, answer_name(path.name, answer), data)
        except OSError as error:
            problems.append(f"the answer could not be written: {error.strerror}")
        if problems:
            self._report(path.name, folder, problems)
        try:
            self._writer.set_number(record.ANSWER_OFFSET, request)
        except ValueError:
            return

    @staticmethod
    def _clear(name: str, folder: int) -> None:
        for answer in ANSWERS:
            if answer != WATCHDOG_ANSWER:
                try:
                    os.unlink(answer_name(name, answer), dir_fd=folder)
                except OSError:
                    continue  # not there, or it is replaced whole by the new one

    @staticmethod
    def _report(name: str, folder: int, problems: list[str]) -> None:
        try:
            text = "\n".join(problems).encode("utf-8", "replace")
            write_whole(folder, answer_name(name, ERROR_ANSWER), text)
        except OSError as error:
            log.warning("an answer to the monitor could not be written: %s", error)
