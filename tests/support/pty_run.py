"""A command on a terminal of its own, as somebody at a keyboard has it."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import select
import struct
import subprocess
import termios
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

from tests.support.waiting import eventually

ESCAPES = re.compile(
    r"\x1b(?:\[[0-?]*[ -/]*[@-~]|[PX^_\]].*?(?:\x1b\\|\x07)|[ -/]*[0-~])", re.DOTALL
)


class PtyRun:
    """What the command has written so far, and a hand on its keys."""

    def __init__(self, process: subprocess.Popen[bytes], terminal: int) -> None:
        self.process, self._terminal = process, terminal
        self.written = b""

    def text(self) -> str:
        """All that was written, without what only moves and colours."""
        while select.select([self._terminal], [], [], 0)[0]:
            try:
                self.written += os.read(self._terminal, 65536)
            except OSError:  # nobody has the other side any more
                break
        return ESCAPES.sub("", self.written.decode("utf-8", "replace"))

    def until(self, wanted: str, seconds: float = 60.0) -> None:
        """Wait until a regular expression matches something written."""

        def shown() -> bool:
            return re.search(wanted, self.text(), re.DOTALL) is not None

        try:
            eventually(shown, f"{wanted} is shown", seconds)
        except AssertionError:
            raise AssertionError(f"{wanted!r} is not in {self.text()[-3000:]!r}") from None

    def press(self, keys: str) -> None:
        """Type; what was written before is forgotten."""
        self.text()
        self.written = b""
        os.write(self._terminal, keys.encode())

    def ended(self, seconds: float = 30.0) -> int:
        """Its exit code; what it still writes is read meanwhile."""

        def code() -> tuple[int] | None:
            self.text()
            found = self.process.poll()
            return None if found is None else (found,)

        return eventually(code, "it ends", seconds)[0]


@contextmanager
def on_terminal(
    command: Sequence[str], environ: Mapping[str, str], size: tuple[int, int] = (80, 24)
) -> Iterator[PtyRun]:
    """The command on a new terminal of this size; killed in the end."""
    ours, its = pty.openpty()
    fcntl.ioctl(its, termios.TIOCSWINSZ, struct.pack("HHHH", size[1], size[0], 0, 0))
    process = subprocess.Popen(
        command, stdin=its, stdout=its, stderr=its, env=dict(environ), start_new_session=True
    )
    os.close(its)
    try:
        yield PtyRun(process, ours)
    finally:
        process.kill()
        process.wait()
        os.close(ours)
