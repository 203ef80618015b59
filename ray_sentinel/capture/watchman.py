"""Continues a traced process even if we are killed in the middle of a trace.

A debugger that is killed while it attaches leaves its SIGSTOP behind, and the process stopped. We
continue it, unless we are killed too (the debugger then dies with us). So a child watches: it reads
a pipe whose other end only we hold. When that end closes without a message, it continues the
process if it finds it stopped, and ends within seconds. It is the one child of ours that outlives
us.

The file is also that child's program, and therefore imports the standard library alone.
"""

from __future__ import annotations

import os
import signal
import sys
import time

PATIENCE = 3.0
"""Seconds for which the watchman watches the process once we are gone."""


def state_and_tracer(pid: int, start: int) -> tuple[str, bool] | None:
    """The state of the process and whether somebody traces it; None if it is gone."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            fields = file.read().rpartition(b")")[2].split()
        with open(f"/proc/{pid}/status", "rb") as file:
            traced = b"\nTracerPid:\t0\n" not in file.read()
    except OSError:
        return None
    if len(fields) < 20 or int(fields[19]) != start:
        return None
    return fields[0].decode(), traced


def continue_untraced(pid: int, start: int) -> bool:
    """Continue the process if it stays stopped though nobody traces it. Returns whether it did."""
    continued = False
    end = time.monotonic() + PATIENCE
    quiet = 0
    while time.monotonic() < end:
        seen = state_and_tracer(pid, start)
        if seen is None:
            return continued
        state, traced = seen
        quiet = quiet + 1 if state in ("T", "t") and not traced else 0
        if quiet >= 3:
            _continue(pid, start)
            continued, quiet = True, 0
        time.sleep(0.02)
    return continued


def _continue(pid: int, start: int) -> None:
    try:
        handle = os.pidfd_open(pid)
    except (AttributeError, OSError):
        handle = -1
    try:
        # Opened by number: the start time is looked at again before the signal goes out.
        if state_and_tracer(pid, start) is None:
            return
        if handle >= 0:
            signal.pidfd_send_signal(handle, signal.SIGCONT)
        else:
            os.kill(pid, signal.SIGCONT)
    except (ProcessLookupError, PermissionError):
        return  # it ended, or was never ours to continue
    finally:
        if handle >= 0:
            os.close(handle)


def main(pid: int, start: int) -> None:
    """Wait for the message that all is well, or for the pipe's end."""
    # The launcher asked the kernel to end us with our parent; from here on that must not happen.
    import ctypes

    ctypes.CDLL(None).prctl(1, 0, 0, 0, 0)
    os.write(1, b"r")
    try:
        said = os.read(0, 1)
    except OSError:
        said = b""
    if not said:
        continue_untraced(pid, start)


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
