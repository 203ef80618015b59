"""Another user of this machine (``nobody``), for tests of what that one can do to us.

The work is done in a forked child that gave up root: an interpreter below a home folder of root's
cannot be started by anybody else.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import signal
import traceback
from collections.abc import Callable, Iterator
from typing import ParamSpec, TypeVar

from tests.support.parts import lacking

P = ParamSpec("P")
T = TypeVar("T")

NOBODY = 65534


def as_nobody(do: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """What ``do`` returns as another user; what it raises is raised here. Both are pickled."""
    reads, writes = os.pipe()
    pid = _fork(lambda: _answer(writes, lambda: do(*args, **kwargs)), reads)
    os.close(writes)
    with open(reads, "rb") as answers:
        answer = answers.read()
    os.waitpid(pid, 0)
    assert answer, "the other user's process ended without an answer"
    worked, value = pickle.loads(answer)
    if not worked:
        raise value
    return value  # type: ignore[no-any-return]


@contextlib.contextmanager
def nobody_runs(do: Callable[P, object], *args: P.args, **kwargs: P.kwargs) -> Iterator[int]:
    """``do`` as another user meanwhile: its pid. It is killed at the end."""
    pid = _fork(lambda: do(*args, **kwargs))
    try:
        yield pid
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)


def _fork(do: Callable[[], object], *close: int) -> int:
    if os.geteuid() != 0:
        lacking("only root can become another user: run the tests as root")
    if pid := os.fork():
        return pid
    status = 1
    try:
        for number in close:
            os.close(number)
        os.setgroups([])
        os.setresgid(NOBODY, NOBODY, NOBODY)
        os.setresuid(NOBODY, NOBODY, NOBODY)
        do()
        status = 0
    except BaseException:  # noqa: BLE001 - the child must not go on as a copy of pytest
        traceback.print_exc()
    finally:
        os._exit(status)


def _answer(writes: int, do: Callable[[], object]) -> None:
    try:
        answer: tuple[bool, object] = (True, do())
    except Exception as error:  # noqa: BLE001 - it is raised again in the parent
        answer = (False, error)
    with open(writes, "wb") as answers:
        pickle.dump(answer, answers)
