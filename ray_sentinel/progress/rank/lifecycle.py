"""The lifecycle of a writer in its process: last words, forks, debuggers, companion thread.

writer = ProgressWriter.open(who.resolve())
life = lifecycle.watch_over(writer)
...
life.end()                                        # or nothing: the exit is recorded by itself
"""

from __future__ import annotations

import atexit
import logging
import os
import sys
import traceback
import weakref
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any

from ray_sentinel.kernel_files import yama_scope
from ray_sentinel.progress.directory import write_whole
from ray_sentinel.progress.rank import answers
from ray_sentinel.progress.rank.companion import Companion
from ray_sentinel.progress.rank.watchdog import Watchdog
from ray_sentinel.progress.rank.writer import ProgressWriter
from ray_sentinel.progress.requests import answer_name

log = logging.getLogger(__name__)

TEARDOWN = "teardown"
"""The phase that begins when the interpreter starts to exit."""

_PR_SET_PTRACER = 0x59616D61
_PR_SET_PTRACER_ANY = -1

_lives: weakref.WeakSet[Lifecycle] = weakref.WeakSet()


class Lifecycle:
    """The hooks installed around one writer; keep this object as long as the writer."""

    def __init__(self, writer: ProgressWriter) -> None:
        self.writer = writer
        self.companion = Companion(writer) if writer.attached else None
        self._previous_hook = sys.excepthook
        self._hook = self._on_exception
        self._ended = False
        self._paused: Watchdog | None = None

    def install(self) -> None:
        """Install the hooks and start the companion."""
        sys.excepthook = self._hook
        atexit.register(self._on_exit)
        self._on_multiprocessing_exit()
        _lives.add(self)
        if self.companion is not None:
            self.companion.start()

    def end(self) -> None:
        """Remove all hooks and close the record, with the last words "detach"."""
        if self._ended:
            return
        self._ended = True
        if self.companion is not None:
            self.companion.stop()
        if sys.excepthook is self._hook:
            sys.excepthook = self._previous_hook
        atexit.unregister(self._on_exit)
        _lives.discard(self)
        self.writer.close()

    def _on_exception(
        self, kind: type[BaseException], error: BaseException, trace: TracebackType | None
    ) -> None:
        try:
            self.writer.last_words("exception", _describe(error))
            self._leave_recorder()
        finally:
            self._previous_hook(kind, error, trace)

    def _leave_recorder(self) -> None:
        """Write the flight recorder before the end: it cannot be requested afterwards, and it may
        show what caused the exception."""
        path, folder = self.writer.path, self.writer.directory
        if path is None or folder < 0:
            return
        try:
            for answer, data in answers.flight_recorder().items():
                write_whole(folder, answer_name(path.name, answer), data)
        except answers.AnswerError:
            return  # no PyTorch, or no recorder in it
        except OSError as failure:
            log.warning("the flight recorder could not be left: %s", failure)

    def _on_exit(self) -> None:
        if self._ended or not self.writer.attached:
            return
        # Set by the interpreter when it prints a traceback, whoever replaced our hook.
        error = getattr(sys, "last_value", None)
        if isinstance(error, BaseException) and not hasattr(sys, "ps1"):
            self.writer.last_words("exception", _describe(error))
        else:
            self.writer.last_words("exit")
        self.writer.begin_phase(TEARDOWN)

    def _on_multiprocessing_exit(self) -> None:
        """Prepare last words in a child of multiprocessing, which ends by ``os._exit``, without
        atexit or excepthook."""
        process: Any = sys.modules.get("multiprocessing.process")
        util: Any = sys.modules.get("multiprocessing.util")
        if process is None or util is None or process.parent_process() is None:
            return
        util.Finalize(None, self._on_child_exit, exitpriority=0)

    def _on_child_exit(self) -> None:
        # Called in the ``finally`` clause that an exception of the child passes through.
        error = sys.exc_info()[1]
        if error is not None and not isinstance(error, SystemExit):
            self.writer.last_words("exception", _describe(error))
        self._on_exit()

    def before_fork(self) -> None:
        """Called in the parent, with the interpreter lock held."""
        self._paused = self.companion.watchdog if self.companion is not None else None
        if self._paused is not None:
            self._paused.pause()

    def after_fork_in_parent(self) -> None:
        """The opposite of ``before_fork``."""
        if self._paused is not None:
            self._paused.resume()

    def after_fork_in_child(self) -> None:
        """Abandon the parent's record: a child never writes it."""
        self._ended = True
        _lives.discard(self)
        if sys.excepthook is self._hook:
            sys.excepthook = self._previous_hook
        self.writer.abandon()


def watch_over(writer: ProgressWriter) -> Lifecycle:
    """Install everything around a writer. Works for one that has no file, and does less then."""
    allow_tracing()
    life = Lifecycle(writer)
    life.install()
    return life


def allow_tracing(proc: Path = Path("/proc")) -> bool:
    """Where Yama restricts ptrace to ancestors, let any process of the same user trace this one.

    ``man 2 PR_SET_PTRACER``. Without it an agent's py-spy, which is no ancestor of the rank, would
    need CAP_SYS_PTRACE. Returns whether something was done.
    """
    if yama_scope(proc) != 1:
        return False
    import ctypes

    library = ctypes.CDLL(None)
    return bool(library.prctl(_PR_SET_PTRACER, _PR_SET_PTRACER_ANY, 0, 0, 0) == 0)


def _describe(error: BaseException) -> str:
    # This works even for an exception whose own __str__ raises.
    lines = traceback.format_exception_only(type(error), error)
    return "".join(lines).strip()


def _for_each_life(hook: Callable[[Lifecycle], None]) -> Callable[[], None]:
    def run() -> None:
        for life in list(_lives):
            hook(life)

    return run


os.register_at_fork(
    before=_for_each_life(Lifecycle.before_fork),
    after_in_parent=_for_each_life(Lifecycle.after_fork_in_parent),
    after_in_child=_for_each_life(Lifecycle.after_fork_in_child),
)
