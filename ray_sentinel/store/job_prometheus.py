"""The Prometheus of a job: started beside the coordinator, watched, restarted, ended in peace.

Its data and its log are in a folder of the job's. It listens on loopback only. It dies with the
process that started it; what it had not written to a block is in its write-ahead log.
"""

from __future__ import annotations

import logging
import os
import re
import shutil
import subprocess
import urllib.error
import urllib.request
from collections.abc import Mapping
from pathlib import Path

from ray_sentinel.clock import Clock, SystemClock
from ray_sentinel.errors import ConfigError, MissingPartError, UnreachableError
from ray_sentinel.process import end, reap, run, spawn
from ray_sentinel.store.alerts.catalog import RULES_FILE, rules_file
from ray_sentinel.store.binary import find_program
from ray_sentinel.store.readonly import free_port
from ray_sentinel.store.scrape_config import (
    Discovery,
    ray_targets_file,
    scrape_config,
    targets_file,
)
from ray_sentinel.store.tsdb import lock_holder

log = logging.getLogger(__name__)

MAX_LOG_BYTES = 16 << 20
END_SECONDS = 4.0
"""To flush at the end."""
FIRST_PAUSE, LONGEST_PAUSE = 1.0, 60.0
"""Between two starts of one that ends at once."""
WELL_SECONDS = 60.0
"""One that ran so long is well: the pauses begin anew."""
_LOCK_OPTION = "--storage.tsdb.use-lockfile"
_DURATION = re.compile(r"(\d+y)?(\d+w)?(\d+d)?(\d+h)?(\d+m)?(\d+s)?")


class JobPrometheus:
    """One server over ``folder``. Call ``step`` every few seconds; nothing else starts it.

    Raises MissingPartError where the program is not installed, ConfigError for a retention that is
    none.
    """

    def __init__(
        self,
        folder: Path,
        *,
        binary: str = "",
        port: int = 9190,
        retention: str = "30d",
        max_bytes: int = 0,
        clock: Clock | None = None,
    ) -> None:
        if not retention or not _DURATION.fullmatch(retention):
            raise ConfigError(f"prometheus.retention: {retention!r} is no duration such as 30d")
        self.program = find_program("prometheus", binary)
        self.folder = folder
        self.restarts = 0
        self._wanted_port, self._port = port, 0
        self._retention, self._max_bytes = retention, max_bytes
        self._clock = clock or SystemClock()
        self._child: subprocess.Popen[bytes] | None = None
        self._started, self._due, self._pause = 0.0, 0.0, FIRST_PAUSE
        self._written: dict[str, bytes] = {}
        self._problem = ""
        self._closed = False
        self._locks_by_itself: bool | None = None

    @property
    def url(self) -> str:
        """Where it answers; empty while it does not run."""
        return f"http://127.0.0.1:{self._port}" if self._child is not None else ""

    @property
    def notes(self) -> tuple[str, ...]:
        """What people should know."""
        notes = []
        if self._child is not None and self._port != self._wanted_port:
            notes.append(
                f"port {self._wanted_port} is taken: the job's Prometheus is on {self._port}"
            )
        if self.restarts:
            notes.append(f"the job's Prometheus was restarted {self.restarts} times")
        if self._problem:
            notes.append(f"the job's Prometheus: {self._problem}")
        return tuple(notes)

    @property
    def pid(self) -> int | None:
        """Its process; None while it does not run."""
        return self._child.pid if self._child is not None else None

    def step(self, agents: tuple[str, ...], ray: Mapping[str, str]) -> None:
        """Bring the lists of targets up to date, and see that it runs.

        ``agents`` are ``host:port``, ``ray`` is ``host:port`` → host label. Raises OSError where
        the folder cannot be written.
        """
        self._write("agents.json", targets_file(agents))
        self._write("ray.json", ray_targets_file(ray))
        self._watch()
        if self._child is None and not self._closed and self._clock.monotonic() >= self._due:
            self._start()

    def close(self) -> None:
        """End it, so that it writes what it has; it is not started again."""
        self._closed = True
        if self._child is None:
            return
        child, self._child = self._child, None
        if end(child, grace=END_SECONDS):
            log.info("prometheus (pid %d) ended with status %s", child.pid, child.returncode)
        else:
            log.warning("prometheus (pid %d) cannot be ended", child.pid)

    def ready(self) -> bool:
        """Whether it answers queries now."""
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        try:
            with opener.open(f"{self.url}/-/ready", timeout=2):
                return True
        except (urllib.error.URLError, ConnectionError, TimeoutError, ValueError):
            return False

    def _watch(self) -> None:
        if self._child is None:
            return
        status = reap(self._child)
        ran = self._clock.monotonic() - self._started
        if status is None:
            if ran > WELL_SECONDS:
                self._pause, self._problem = FIRST_PAUSE, ""
            self._bound_log()
            return
        self._problem = f"ended with status {status} after {ran:.0f} s: {self._last_words()}"
        log.warning("prometheus (pid %d) %s", self._child.pid, self._problem)
        self._child = None
        self._due = self._clock.monotonic() + self._pause
        self._pause = min(2 * self._pause, LONGEST_PAUSE)
        self.restarts += 1

    def _start(self) -> None:
        data = self.folder / "data"
        data.mkdir(parents=True, exist_ok=True)
        # Its lock is Prometheus's own business: whoever holds it keeps it, and we wait.
        if holder := lock_holder(data / "lock"):
            self._problem = f"process {holder} holds {data}; waiting for it to end"
            self._due = self._clock.monotonic() + self._pause
            return
        self._write(RULES_FILE, rules_file().encode())
        self._write("prometheus.yml", self._config().encode())
        try:
            self._port = free_port(self._wanted_port)
            with (self.folder / "prometheus.log").open("ab") as output:
                self._child = spawn(self._arguments(data), stdout=output, stderr=output)
        except (MissingPartError, UnreachableError, OSError) as error:
            self._problem = f"cannot be started: {error}"
            self._due = self._clock.monotonic() + LONGEST_PAUSE
            log.warning("prometheus %s", self._problem)
            return
        self._started = self._clock.monotonic()
        log.info("prometheus started, pid %d, %s, data in %s", self._child.pid, self.url, data)

    def _config(self) -> str:
        where = Discovery(
            kind="file", agents=str(self.folder / "agents.json"), ray=str(self.folder / "ray.json")
        )
        return scrape_config(
            where, rules=(str(self.folder / RULES_FILE), str(self.folder / "rules" / "*.yml"))
        )

    def _arguments(self, data: Path) -> list[str]:
        size = [f"--storage.tsdb.retention.size={self._max_bytes}B"] if self._max_bytes else []
        return [
            self.program,
            f"--config.file={self.folder / 'prometheus.yml'}",
            f"--storage.tsdb.path={data}",
            f"--storage.tsdb.retention.time={self._retention}",
            *size,
            *self._lock_option(),
            f"--web.listen-address=127.0.0.1:{self._port}",
            # Steps that were read too late to be scraped can be sent.
            "--web.enable-remote-write-receiver",
            "--log.level=info",
        ]

    def _lock_option(self) -> list[str]:
        """Debian's package takes no lock unless told to: two servers could write the same data."""
        if self._locks_by_itself is None:
            told = run([self.program, "--help"], deadline=60.0)
            self._locks_by_itself = _LOCK_OPTION.encode() not in told.stdout + told.stderr
        return [] if self._locks_by_itself else [_LOCK_OPTION]

    def _write(self, name: str, data: bytes) -> None:
        """Replace a file whole, if it is another now; Prometheus looks at it by itself."""
        if self._written.get(name) == data and (self.folder / name).exists():
            return
        self.folder.mkdir(parents=True, exist_ok=True)
        scratch = self.folder / f".{name}.new"
        scratch.write_bytes(data)
        scratch.replace(self.folder / name)
        self._written[name] = data

    def _bound_log(self) -> None:
        path = self.folder / "prometheus.log"
        try:
            if path.stat().st_size > MAX_LOG_BYTES:
                shutil.copyfile(path, path.with_suffix(".log.1"))
                os.truncate(path, 0)  # it is written by appending
        except OSError as error:
            log.debug("the log of prometheus was not cut: %s", error)

    def _last_words(self) -> str:
        try:
            with (self.folder / "prometheus.log").open("rb") as file:
                file.seek(max(0, os.fstat(file.fileno()).st_size - 2048))
                lines = file.read().decode("utf-8", "replace").strip().splitlines()
        except OSError:
            return ""
        return lines[-1][-300:] if lines else ""
