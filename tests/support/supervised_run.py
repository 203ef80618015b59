"""``ray-sentinel run`` as a process, and what it keeps of its attempts."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.support.living import alive
from tests.support.waiting import eventually

SECONDS = 60.0
RUN = [sys.executable, "-m", "ray_sentinel.cli.main", "run", "--page", "", "--retry-delay", "0.1"]


class Run:
    """Supervised runs of one job, with their files in a folder of the test's own."""

    def __init__(self, tmp_path: Path) -> None:
        self.root = tmp_path / "log"
        self.started: list[subprocess.Popen[bytes]] = []

    def start(
        self, *cmd: str | bytes, options: tuple[str | bytes, ...] = (), **more: Any
    ) -> subprocess.Popen[bytes]:
        environ = {**os.environb, **more.pop("env", {})}
        environ.setdefault(b"RAY_SENTINEL_LOG_DIR", os.fsencode(self.root))
        behind = more.pop("behind", ())
        streams = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **more}
        argv = [*behind, *RUN, "--job", "job", *options, "--", *cmd]
        self.started.append(subprocess.Popen(argv, env=environ, **streams))
        return self.started[-1]

    def end(self, one: subprocess.Popen[bytes]) -> tuple[int, str, str]:
        """(Exit code, standard output, standard error)."""
        out, err = one.communicate(timeout=SECONDS)
        texts = [(data or b"").decode(errors="replace") for data in (out, err)]
        return one.returncode, texts[0], texts[1]

    def run(self, *cmd: str | bytes, **more: Any) -> tuple[int, str, str]:
        return self.end(self.start(*cmd, **more))

    def state(self, attempt: int = 0) -> dict[str, Any]:
        try:
            path = self.root / f"run/job/attempt-{attempt:04d}/state.json"
            return dict(json.loads(path.read_text()))
        except (OSError, ValueError):
            return {}

    def until_it_runs(self, attempt: int = 0) -> dict[str, Any]:
        until(lambda: self.state(attempt).get("child"))
        return self.state(attempt)


def until(look: Callable[[], Any], seconds: float = SECONDS) -> Any:
    return eventually(look, "it comes", seconds, every=0.05)


@contextmanager
def run_in(folder: Path) -> Iterator[Run]:
    """Runs whose files lie in ``folder/log``; what is left of them is ended."""
    made = Run(folder)
    try:
        yield made
    finally:
        for one in made.started:
            if one.poll() is None:
                one.kill()
                one.communicate(timeout=SECONDS)
        for path in made.root.glob("run/*/attempt-*/state.json"):
            state = json.loads(path.read_text() or "{}")
            if state and state.get("ended_at") is None and alive(state["keeper"]):
                os.kill(state["keeper"], signal.SIGKILL)
