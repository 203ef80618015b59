"""Programs run here, or in a pod by ``kubectl exec``: the monitor's functions work in both places.

An empty pod name means this machine, which is a node of the cluster.
"""

from __future__ import annotations

import msgspec

from ray_sentinel import process
from ray_sentinel.errors import UnreachableError
from ray_sentinel.evidence.logs.lines.lines import strip_escapes
from ray_sentinel.logs.find import live_session
from ray_sentinel.masking import mask

DEADLINE = 30.0
"""Seconds for one program, ``kubectl``'s way to the pod included."""
_POD_LOGS = "/tmp/ray/session_latest/logs"


class Shell(msgspec.Struct, frozen=True):
    """Where programs run: in ``pod`` of ``namespace``, or here."""

    pod: str = ""
    namespace: str = "default"

    @property
    def logs(self) -> str:
        """Ray's folder of logs there. Raises UnreachableError if this machine has none."""
        return _POD_LOGS if self.pod else str(live_session() / "logs")

    def run(
        self,
        *argv: str,
        deadline: float = DEADLINE,
        most: int = 16 << 20,
        stdin: bytes = b"",
    ) -> str:
        """What the program prints on both streams. Raises UnreachableError if it does not end well
        in time, saying how, and MissingPartError where kubectl is not installed.
        """
        done = self._done(argv, deadline, most, stdin)
        if not done.ok:
            where = f" in pod {self.pod}" if self.pod else ""
            raise UnreachableError(mask(f"{argv[0]}{where}: {done.explain()}"))
        return _text(done)

    def ask(self, *argv: str, deadline: float = DEADLINE) -> tuple[bool, str]:
        """(whether it ended well, what it prints), for programs whose failure is an answer."""
        done = self._done(argv, deadline, 16 << 20, b"")
        return done.ok, _text(done)

    def _done(
        self, argv: tuple[str, ...], deadline: float, most: int, stdin: bytes
    ) -> process.Completed:
        command = self.command(argv, reads=bool(stdin))
        return process.run(command, deadline=deadline, max_output=most, input=stdin)

    def command(self, argv: tuple[str, ...], *, reads: bool = False) -> list[str]:
        """The program's whole command line; ``reads`` where it has a standard input."""
        if self.pod:
            named = ["-n", self.namespace, self.pod, "--"]
            return ["kubectl", "exec", *(["-i"] if reads else []), *named, *argv]
        if argv[0] == "ray":
            return process.python_module("ray.scripts.scripts", *argv[1:])
        return list(argv)


def _text(done: process.Completed) -> str:
    both = done.stdout + b"\n" + done.stderr
    return "\n".join(strip_escapes(line) for line in both.decode("utf-8", "replace").split("\n"))
