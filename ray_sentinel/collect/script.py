"""A plugin that is a program, in any language, run once a cycle.

The host's name is its first argument. It prints Prometheus text on stdout and log lines on stderr.
Exit status 99 means "never again". A last line ``# STATE <text>`` comes back in the environment
variable ``_PLUGIN_STATE`` on the next run; alone, it means "alive, nothing new".
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import ClassVar

from ray_sentinel import process
from ray_sentinel.api import Collector, Context, Family, NoData, Skip
from ray_sentinel.collect.exposition_text import parse
from ray_sentinel.collect.protocol import CollectorSource
from ray_sentinel.errors import InputError

NEVER_AGAIN = 99
"""Exit status of a script that has nothing to read on this node."""
STATE_VARIABLE = "_PLUGIN_STATE"
MAX_OUTPUT = 8 << 20
"""Most bytes of stdout that are read; the rest is dropped, and a problem says so."""
MAX_LOG_LINES = 100
"""Most lines of stderr that are kept of one run; of the rest, only the number is logged."""
_RESERVE = 0.9
"""Share of the deadline that the program itself may take."""


class ScriptCollector(Collector):
    """Runs the program and parses what it prints."""

    name = "script"
    dynamic: ClassVar[tuple[str, ...]] = ("",)

    def __init__(self, context: Context, source: CollectorSource) -> None:
        super().__init__(context)
        self.problems: tuple[str, ...] = ()
        """What was wrong with the last output, by line."""
        self.on_start: Callable[[int], None] | None = None
        self._source = source
        self._state = ""
        if self._state_file is not None and self._state_file.is_file():
            self._state = self._state_file.read_text("utf-8", "replace")

    def collect(self) -> Iterable[Family]:
        """Run once. Raises Skip, NoData, TimeoutError, or InputError for a failed program."""
        origin = Path(self._source.origin or self._source.target)
        started = time.monotonic()
        done = process.run(
            [*interpreter(Path(self._source.target), origin), self.context.host],
            deadline=self.deadline * _RESERVE,
            max_output=MAX_OUTPUT,
            env={**self.context.environ, STATE_VARIABLE: self._state},
            cwd=origin.parent if origin.parent.is_dir() else None,
            on_start=self.on_start,
        )
        self._log(done.stderr)
        if done.returncode is None:
            # Not even SIGKILL ended it. The runner must see that: let the deadline pass.
            time.sleep(max(0.0, 2 * self.deadline - (time.monotonic() - started)))
        if done.timed_out:
            raise TimeoutError(f"{origin.name} was ended after {done.seconds:.1f} s")
        if done.returncode == NEVER_AGAIN:
            raise Skip(self._last_words(done.stderr) or f"exit status {NEVER_AGAIN}")
        if done.returncode != 0:
            words = self._last_words(done.stderr)
            raise InputError(
                f"{origin.name} ended with status {done.returncode}" + (words and f": {words}")
            )
        return self._read(done.stdout, done.truncated)

    def _read(self, stdout: bytes, truncated: bool) -> Iterable[Family]:
        output = parse(stdout.decode("utf-8", "backslashreplace"))
        self.problems = output.problems
        if truncated:
            self.problems += (f"printed more than {MAX_OUTPUT} bytes: the rest is dropped",)
        if output.state is not None:
            self._keep(output.state)
        if output.nothing_new:
            raise NoData("nothing new")
        return output.families

    @property
    def _state_file(self) -> Path | None:
        return self.context.state_dir / "state" if self.context.state_dir is not None else None

    def _keep(self, state: str) -> None:
        # An environment variable cannot hold NUL.
        self._state = state.replace("\0", "")
        if self._state_file is None:
            return
        try:
            self._state_file.parent.mkdir(parents=True, exist_ok=True)
            self._state_file.write_text(self._state, "utf-8", "replace")
        except OSError as error:
            self.log.warning("its state will not outlive this process: %s", error)

    def _log(self, stderr: bytes) -> None:
        lines = stderr.decode("utf-8", "backslashreplace").splitlines()
        for line in lines[:MAX_LOG_LINES]:
            self.log.info("%s", line[:1000])
        if len(lines) > MAX_LOG_LINES:
            self.log.info("... and %d lines more", len(lines) - MAX_LOG_LINES)

    def _last_words(self, stderr: bytes) -> str:
        lines = stderr.decode("utf-8", "backslashreplace").split("\n")
        return next((line.strip()[:300] for line in reversed(lines) if line.strip()), "")


def interpreter(program: Path, origin: Path) -> list[str]:
    """The command that runs ``program``. Its ``#!`` line is read here, because the copy that we run
    may be on a file system without execute permission.

    Raises InputError for a missing interpreter, or a file that is not a program.
    """
    with program.open("rb") as file:
        head = file.read(256)
    if head.startswith(b"\x7fELF"):
        return [str(program)]
    if not head.startswith(b"#!"):
        raise InputError(f"{origin}: has no #! line that names its interpreter")
    line = os.fsdecode(head[2:].split(b"\n")[0])
    if line.endswith("\r"):
        raise InputError(f"{origin}: has Windows line ends; convert it with dos2unix")
    parts = line.strip().split(None, 1)
    if not parts:
        raise InputError(f"{origin}: its #! line names no interpreter")
    if not os.path.exists(parts[0]):
        raise InputError(f"{origin}: its interpreter {parts[0]} is not there")
    return [*parts, str(program)]
