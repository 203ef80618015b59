"""A terminal that is slow, stands still, or has gone."""

from __future__ import annotations

import fcntl
import io
import os

from ray_sentinel.supervise.attempt.terminal import Terminal

SECONDS = 30.0


def pipe() -> tuple[int, io.FileIO]:
    reading, writing = os.pipe()
    return reading, io.FileIO(writing, "wb")


def read(handle: int, size: int) -> bytes:
    data = b""
    while len(data) < size and (more := os.read(handle, 1 << 16)):
        data += more
    return data


def test_all_is_shown_in_order() -> None:
    shown = io.BytesIO()
    terminal = Terminal(shown)
    for number in range(1000):
        terminal.write(b"%d\n" % number)
    terminal.close(SECONDS)
    assert shown.getvalue() == b"".join(b"%d\n" % number for number in range(1000))


def test_one_that_stands_still_holds_nobody_up_and_one_that_goes_is_let_go() -> None:
    reading, to = pipe()
    terminal = Terminal(to)
    for _ in range(40):
        terminal.write(b"x" * 65536)  # would block for ever, were it not for the thread
    os.close(reading)
    terminal.close(SECONDS)
    terminal.write(b"nobody reads this")
    to.close()


def test_what_was_left_out_is_counted() -> None:
    reading, to = pipe()
    terminal = Terminal(to, most_waiting=1 << 20)
    block = b"x" * (1 << 18)
    for _ in range(8):
        terminal.write(block)
    assert read(reading, 4 << 18) == b"x" * (4 << 18)
    # What it takes makes room; the thread may still be about to say so.
    seen = b""
    while seen.count(b"\n") < 3:  # one before the note, one after it, and the next line's
        terminal.write(b"later\n")
        seen += os.read(reading, 1 << 16)
    assert b"bytes are not shown: the terminal was too slow]\nlater\n" in seen
    left_out = int(seen.split(b"[")[1].split()[0])
    assert left_out >= 4 << 18
    os.close(reading)
    terminal.close(SECONDS)
    to.close()


def test_one_that_another_program_made_non_blocking() -> None:
    reading, to = pipe()
    flags = fcntl.fcntl(to.fileno(), fcntl.F_GETFL)
    fcntl.fcntl(to.fileno(), fcntl.F_SETFL, flags | os.O_NONBLOCK)
    terminal = Terminal(to)
    terminal.write(b"x" * (1 << 20))
    assert len(read(reading, 1 << 20)) == 1 << 20
    terminal.close(SECONDS)
    os.close(reading)
    to.close()
