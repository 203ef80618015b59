"""Requests evidence from a rank's companion thread through its record.

This works without a debugger: the rank's own Python stacks, and its flight recorder, for which
there is no other way. It works while the interpreter runs; if the GIL is held, ``held_stacks``
returns what faulthandler wrote, provided that the watchdog was armed before.
"""

from __future__ import annotations

import os
import stat
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec

from ray_sentinel.errors import SentinelError
from ray_sentinel.progress import record
from ray_sentinel.progress.record_view import RecordView, UnreadableRecordError, parse
from ray_sentinel.progress.requests import (
    ERROR_ANSWER,
    RECORDER_JSON_ANSWER,
    RECORDER_PICKLE_ANSWER,
    STACKS_ANSWER,
    WATCHDOG_ANSWER,
    ProgressRequest,
    answer_name,
    pack_request,
    unpack_request,
)

POLL = 0.05
"""Seconds between two checks for an answer."""
MAX_ANSWER = 64 << 20
"""Most bytes of one answer: sixty times a recorder of 2,000 operations. One more byte is read to
notice a longer one."""

_RECORDERS = (RECORDER_PICKLE_ANSWER, RECORDER_JSON_ANSWER)
"""The answers with recorders: NCCL's, which say most, then those of the other backends."""
_WATCHDOG = ProgressRequest.WATCHDOG_ON | ProgressRequest.WATCHDOG_OFF
_asking = threading.Lock()
"""Makes the read-modify-write of the request word atomic within this process only."""


class NoAnswerError(SentinelError):
    """The rank did not return what was requested; the message says why."""


class RecorderDump(msgspec.Struct, frozen=True, kw_only=True):
    """One flight recorder of a rank."""

    data: bytes
    pickled: bool
    """Whether it is a pickle, as PyTorch's watchdog writes it; otherwise JSON."""


def ask_flight_recorder(
    view: RecordView, timeout: float = 5.0, *, sleep: Callable[[float], None] = time.sleep
) -> None:
    """Make the rank write its flight recorders, for ``each_left_recorder`` to read.

    Blocks up to ``timeout`` seconds. Raises NoAnswerError, also if the rank has none.
    """
    _ask(view, ProgressRequest.FLIGHT_RECORDER, timeout, sleep)
    if not has_left_recorder(view):
        raise NoAnswerError(_why(view))


def has_left_recorder(view: RecordView) -> bool:
    """Whether the rank has written a flight recorder."""
    names = (answer_name(view.path.name, answer) for answer in _RECORDERS)
    return any(_size(view.path.with_name(name)) for name in names)


def each_left_recorder(view: RecordView) -> Iterator[RecorderDump]:
    """The flight recorders that exist already: a rank writes them when an exception ends it.

    Each is read only when it is requested. Raises NoAnswerError if it cannot be read.
    """
    for answer in _RECORDERS:
        if data := _read(view, answer):
            yield RecorderDump(data=data, pickled=answer == RECORDER_PICKLE_ANSWER)


def _size(path: Path) -> int:
    try:
        return path.lstat().st_size
    except OSError:
        return 0


def request_stacks(
    view: RecordView, timeout: float = 5.0, *, sleep: Callable[[float], None] = time.sleep
) -> bytes:
    """The rank's Python stacks in the form of ``py-spy dump --json``.

    Blocks up to ``timeout`` seconds. Raises NoAnswerError, naming what else is available.
    """
    _ask(view, ProgressRequest.STACKS, timeout, sleep)
    data = _read(view, STACKS_ANSWER)
    if not data:
        raise NoAnswerError(_why(view))
    return data


def arm_watchdog(view: RecordView, on: bool = True) -> None:
    """Make the rank write its stacks when its interpreter is held for 5 s. Does not wait.

    Meant for machines on which ptrace is refused. Raises NoAnswerError if the record cannot be
    written.
    """
    _write_request(view, ProgressRequest.WATCHDOG_ON if on else ProgressRequest.WATCHDOG_OFF)


def held_stacks(view: RecordView) -> bytes:
    """What faulthandler wrote since the interpreter was last seen running, as text.

    Raises NoAnswerError if there is nothing.
    """
    if not view.watchdog:
        raise NoAnswerError("the watchdog is not armed in this process")
    data = _read(view, WATCHDOG_ANSWER)
    if not data:
        raise NoAnswerError("the interpreter has not been held for long enough")
    return data


def _ask(
    view: RecordView, wish: ProgressRequest, timeout: float, sleep: Callable[[float], None]
) -> None:
    serial = _write_request(view, wish)
    deadline = time.monotonic() + timeout
    while _answered(view) < serial:
        if time.monotonic() >= deadline:
            raise NoAnswerError(
                f"the companion thread of pid {view.header.pid} did not answer within "
                f"{timeout:g} s: the process is stopped, or its interpreter does not run"
            )
        sleep(POLL)


def _write_request(view: RecordView, wish: ProgressRequest) -> int:
    """Write a request, and return its serial number. Requests of others that the companion, which
    looks twice a second, has not seen yet are kept."""
    with _asking:
        handle = _open(view, os.O_RDWR)
        try:
            current = _word(handle, record.REQUEST_OFFSET)
            serial, waiting = unpack_request(current)
            if current == _word(handle, record.ANSWER_OFFSET):
                waiting = ProgressRequest(0)
            if wish & _WATCHDOG:
                waiting &= ~_WATCHDOG
            word = record.NUMBER.pack(pack_request(serial + 1, waiting | wish))
            os.pwrite(handle, word, record.REQUEST_OFFSET)
        except OSError as error:
            raise NoAnswerError(f"{view.path}: the request cannot be written: {error}") from error
        finally:
            os.close(handle)
    return serial + 1


def _answered(view: RecordView) -> int:
    """The serial number of the last request that was answered."""
    handle = _open(view, os.O_RDONLY)
    try:
        return unpack_request(_word(handle, record.ANSWER_OFFSET))[0]
    finally:
        os.close(handle)


def _word(handle: int, offset: int) -> int:
    return int(record.NUMBER.unpack(os.pread(handle, record.NUMBER.size, offset))[0])


def _open(view: RecordView, mode: int) -> int:
    try:
        handle = os.open(view.path, mode | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        raise NoAnswerError(f"{view.path}: {error.strerror}") from error
    try:
        header = parse(os.pread(handle, record.SIZE, 0))
    except (OSError, UnreadableRecordError) as error:
        os.close(handle)
        raise NoAnswerError(f"{view.path}: {error}") from error
    if (header.pid, header.start) != view.key:
        os.close(handle)
        raise NoAnswerError(f"{view.path} is another process's record now")
    return handle


def _read(view: RecordView, answer: str) -> bytes:
    path = view.path.with_name(answer_name(view.path.name, answer))
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        return b""
    except OSError as error:
        raise NoAnswerError(f"{path}: {error.strerror}") from error
    with open(handle, "rb") as file:
        status = os.fstat(handle)
        if not stat.S_ISREG(status.st_mode) or status.st_uid != view.owner:
            raise NoAnswerError(f"{path}: no file of the rank's own user")
        return file.read(MAX_ANSWER + 1)


def _why(view: RecordView) -> str:
    text = _read(view, ERROR_ANSWER).decode("utf-8", "replace").strip()
    return text or "the companion thread gave no answer"
