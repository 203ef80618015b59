"""Flight recorders read and reduced in a child: bounded in memory and in time, and killable.

A rank may write anything into its dump: a few bytes of a pickle can request gigabytes, and the
interpreter's unpickler holds its lock all the while, so that no other thread of the process runs.
So an agent never reads a dump itself: a child does, one dump at a time, with its address space
limited. If the child is killed or dies, that dump is named and a new child continues with the
others.

The file is also that child's program (``python -m ray_sentinel.capture.dump_reducer``): dumps on
standard input, reduced forms on standard output, each with its length before it.
"""

from __future__ import annotations

import contextlib
import os
import resource
import select
import struct
import subprocess
import sys
import time

from ray_sentinel import process as programs
from ray_sentinel.errors import InputError, SentinelError
from ray_sentinel.evidence.flight_recorder.reduced import Form, reduce
from ray_sentinel.process.memory_limit import address_space
from ray_sentinel.progress.ask import MAX_ANSWER
from ray_sentinel.progress.discovery.environment import ROLE_VARIABLE

MAX_MEMORY = 2 << 30
"""Most bytes of the child's address space."""
SPARE_MEMORY = 64 << 20
GROWTH = 40
"""Bytes of memory that reading a dump may take for each of the dump's own bytes, beyond
``SPARE_MEMORY``: what PyTorch writes takes a dozen."""
MAX_REDUCED = 8 << 20
"""Most bytes of one reduced form."""
_LENGTH = struct.Struct("<Q")
_BAD = 1 << 63
"""The flag in an answer's length which says that the reason for a failure follows."""
_FORMS: tuple[Form, ...] = ("whole", "judged", "brief")
_FORM_SHIFT = 61
"""Where a dump's length holds the form that is wanted, as its place among ``_FORMS``."""
_CHUNK = 1 << 18
_NICENESS = 5


class DumpReducer:
    """The child, started with the first dump. Use it from one thread, and ``close`` it.

    ``most`` limits the bytes of a dump, and ``memory`` those of the child's address space.
    """

    def __init__(self, most: int | None = None, memory: int | None = None) -> None:
        self._most, self._memory = most, memory
        self.child: subprocess.Popen[bytes] | None = None

    def reduce(self, data: bytes, seconds: float, form: Form = "whole") -> bytes:
        """The reduced form of a dump (``evidence.flight_recorder.reduced``).

        Raises InputError, without the dump's name, if there is none within ``seconds``.
        """
        most = MAX_ANSWER if self._most is None else self._most
        if len(data) > most:
            raise InputError(
                f"has {len(data) >> 20} MiB and was not read, more than {most >> 20} MiB: "
                "lower TORCH_FR_BUFFER_SIZE (TORCH_NCCL_TRACE_BUFFER_SIZE)"
            )
        end = time.monotonic() + seconds
        try:
            child = self.child = self.child or _started(self._memory or MAX_MEMORY)
            flag = _FORMS.index(form) << _FORM_SHIFT
            _send(child, _LENGTH.pack(len(data) | flag) + data, end)
            length = _LENGTH.unpack(_receive(child, _LENGTH.size, end))[0]
            answer = _receive(child, length & ~_BAD, end)
        except (OSError, SentinelError) as error:
            self.close()
            raise InputError(f"could not be read: {error}") from error
        if length & _BAD:
            raise InputError(answer.decode("utf-8", "replace"))
        return answer

    def close(self) -> None:
        """End the child."""
        child, self.child = self.child, None
        if child is None:
            return
        programs.end(child)
        for pipe in (child.stdin, child.stdout):
            if pipe is not None:
                pipe.close()


def _started(memory: int) -> subprocess.Popen[bytes]:
    child = programs.spawn(
        [sys.executable, "-m", "ray_sentinel.capture.dump_reducer", str(memory)],
        stdin=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        cwd="/",
        env={
            "PATH": os.environ.get("PATH", os.defpath),
            "PYTHONPATH": os.pathsep.join(os.path.abspath(entry) for entry in sys.path),
            ROLE_VARIABLE: "reducer",
        },
    )
    for pipe in (child.stdin, child.stdout):
        assert pipe is not None  # both were asked for
        os.set_blocking(pipe.fileno(), False)
    return child


def _send(child: subprocess.Popen[bytes], data: bytes, end: float) -> None:
    """Raises OSError if the child has died, or does not read until the monotonic ``end``."""
    assert child.stdin is not None
    handle, left = child.stdin.fileno(), memoryview(data)
    while left:
        _await(handle, select.POLLOUT, end)
        try:
            left = left[os.write(handle, left[:_CHUNK]) :]
        except BlockingIOError:
            continue


def _receive(child: subprocess.Popen[bytes], size: int, end: float) -> bytes:
    """Read exactly that many bytes. Raises OSError like ``_send``."""
    assert child.stdout is not None
    if size > MAX_REDUCED:
        raise OSError(f"its reduced form has more than {MAX_REDUCED >> 20} MiB")
    handle, found = child.stdout.fileno(), bytearray()
    while len(found) < size:
        _await(handle, select.POLLIN, end)
        part = os.read(handle, min(size - len(found), _CHUNK))
        if not part:
            raise OSError("the process that read it died, as where it takes too much memory")
        found += part
    return bytes(found)


def _await(handle: int, event: int, end: float) -> None:
    poll = select.poll()
    poll.register(handle, event)
    if not poll.poll(max(0.0, end - time.monotonic()) * 1000):
        raise OSError("there was no time left")


def main(memory: int) -> None:
    """Answer until standard input ends, within a limit (bytes) on the address space."""
    resource.setrlimit(resource.RLIMIT_AS, (memory, memory))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    os.nice(_NICENESS)
    with contextlib.suppress(OSError), open("/proc/self/oom_score_adj", "w") as file:
        file.write("1000")  # if memory runs out, this child should be killed before any rank
    source, sink = sys.stdin.buffer, sys.stdout.buffer
    while head := source.read(_LENGTH.size):
        wanted, flag = _LENGTH.unpack(head)[0], 0
        form = _FORMS[wanted >> _FORM_SHIFT]
        data = source.read(wanted & ~(-1 << _FORM_SHIFT))
        try:
            _limit(memory, SPARE_MEMORY + GROWTH * len(data))
            answer = reduce(data, form)
        except InputError as error:
            flag, answer = _BAD, str(error).encode("utf-8", "replace")
        except (MemoryError, RecursionError):
            flag, answer = _BAD, b"takes more memory than a dump may"
        _limit(memory, memory)
        sink.write(_LENGTH.pack(len(answer) | flag) + answer)
        sink.flush()


def _limit(memory: int, more: int) -> None:
    """Let the process take ``more`` bytes than it has, ``memory`` in all at most."""
    resource.setrlimit(resource.RLIMIT_AS, (min(memory, address_space() + more), memory))


if __name__ == "__main__":
    main(int(sys.argv[1]))
