"""The Prometheus of a job: started beside the coordinator, watched, restarted, shut down cleanly.

Its data and its log are in a folder of the job's. It listens on loopback only, and accepts nothing
there, neither series (no remote-write receiver) nor commands (no lifecycle and no admin API),
because any user of the machine can connect. It dies with the process that started it; what it had
not written to a block is in its write-ahead log.
"""

from __future__ import annotations

import logging
import signal
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path

from ray_sentinel import regex as re
from ray_sentinel import signals
from ray_sentinel.backoff import Backoff
from ray_sentinel.clock import Clock, SystemClock
from ray_sentinel.config import ScrapeConfig
from ray_sentinel.errors import ConfigError, MissingPartError, UnreachableError
from ray_sentinel.private_files import keep_private, opener
from ray_sentinel.process import end, reap, spawn
from ray_sentinel.store.prometheus.binary import OUT_OF_ORDER, find_prometheus, probe
from ray_sentinel.store.prometheus.files import LOW_BYTES, JobFiles
from ray_sentinel.store.prometheus.ports import answers, free_port
from ray_sentinel.store.prometheus.scrape_config import check_scrape
from ray_sentinel.store.prometheus.tsdb import lock_holder

# The user's own rules for a job's Prometheus: used while they are good, read again when changed.
#
# Prometheus does not start with an invalid rule, and keeps the old ones if it is told to read an
# invalid one while it runs.


class UserRules:
    """The rule files in ``rules/`` of a job's Prometheus."""

    def __init__(self, files: JobFiles) -> None:
        self._files = files
        self._seen = files.user_rules()
        self.untrusted = files.untrusted_rules()
        """Why they are left alone: others can have written them; empty if they cannot."""
        self.used = not self.untrusted
        """Whether Prometheus is given them."""
        self._since: int | None = None

    def changed(self) -> bool:
        """Whether they have changed since the last look, so that they are worth another try."""
        rules = self._files.user_rules()
        if rules == self._seen:
            return False
        self._seen, self.untrusted = rules, self._files.untrusted_rules()
        self.used = not self.untrusted
        return True

    def mark_reload(self) -> None:
        """Prometheus is about to read them: from now on, what it logs is about them."""
        self._since = self._files.log_size()

    def refused(self, words: str) -> bool:
        """Whether the end of its log rejects them; then they are not used any more."""
        if not self._files.blames_rules(words):
            return False
        self.used, self._since = False, None
        return True

    def objection(self) -> str:
        """What it logged against them since it was told to read them; empty if nothing."""
        if self._since is None:
            return ""
        words = self._files.last_words(self._since)
        return words if self.refused(words) else ""


log = logging.getLogger(__name__)

END_SECONDS = 4.0
"""Seconds that Prometheus has to flush its data at the end."""
RETRY = Backoff(first=1.0, most=60.0)
"""Seconds to wait before a Prometheus that ended at once is started again."""
WELL_SECONDS = 60.0
"""Seconds after which a running Prometheus counts as healthy, and the back-off is reset."""
_LOCK_FLAG = "storage.tsdb.use-lockfile"
_DURATION = re.compile(r"(\d+y)?(\d+w)?(\d+d)?(\d+h)?(\d+m)?(\d+s)?")


class JobPrometheus:
    """One server over ``folder``. Call ``step`` every few seconds; nothing else starts it.

    ``scrape`` is how the agents are read. Raises MissingPartError if the program is not installed
    or not a Prometheus, ConfigError for an invalid retention or a wrong ``scrape``.
    """

    def __init__(
        self,
        folder: Path,
        *,
        binary: str = "",
        port: int = 9190,
        retention: str = "30d",
        max_bytes: int = 0,
        scrape: ScrapeConfig | None = None,
        clock: Clock | None = None,
    ) -> None:
        if not retention or not _DURATION.fullmatch(retention):
            raise ConfigError(f"prometheus.retention: {retention!r} is no duration such as 30d")
        self.program = probe(find_prometheus(binary))
        check_scrape(scrape or ScrapeConfig())
        self.files = JobFiles(folder, scrape)
        self.restarts = 0
        self._wanted_port, self._port = port, 0
        self._retention, self._max_bytes = retention, max_bytes
        self._clock = clock or SystemClock()
        self._child: subprocess.Popen[bytes] | None = None
        self._started, self._due, self._failures = 0.0, 0.0, 0
        self._rules = UserRules(self.files)
        self._aside: list[str] = []
        self._problem = self._disk = ""
        self._closed = False

    @property
    def url(self) -> str:
        """Its URL; empty while it does not run."""
        return f"http://127.0.0.1:{self._port}" if self._child is not None else ""

    @property
    def notes(self) -> tuple[str, ...]:
        """Problems, for people."""
        return tuple(self._notes())

    @property
    def pid(self) -> int | None:
        """Its process id; None while it does not run."""
        return self._child.pid if self._child is not None else None

    def step(self, agents: tuple[str, ...], ray: Mapping[str, str]) -> None:
        """Update the lists of targets, and make sure that it runs.

        ``agents`` are ``host:port``, or ``https://host:port``; ``ray`` is ``host:port`` → host
        label.
        """
        self._disk = self._check_disk()
        try:
            self.files.write_targets(agents, ray)
        except OSError as error:
            self._disk = f"{self.files.folder} cannot be written: {error.strerror}"
        self._watch()
        self._reload_rules()
        if self._child is None and not self._closed and self._clock.monotonic() >= self._due:
            self._start()

    def close(self) -> None:
        """Stop it so that it writes its data; it is not started again."""
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
        return bool(self.url) and answers(self.url)

    def _notes(self) -> Iterator[str]:
        if self._child is not None and self._port != self._wanted_port:
            yield f"port {self._wanted_port} is taken: the job's Prometheus is on {self._port}"
        if not self.program.takes_old_samples:
            wanted = ".".join(map(str, OUT_OF_ORDER))
            yield (
                f"Prometheus {self.program.version_text} is older than {wanted}: "
                "the steps of event files are not stored"
            )
        if self.restarts:
            yield f"the job's Prometheus was restarted {self.restarts} times"
        for problem in filter(None, (self._problem, self._disk)):
            yield f"the job's Prometheus: {problem}"
        for path in self._aside:
            yield f"the job's Prometheus: a corrupt block was moved to {path}"
        if not self._rules.used:
            why = f": {self._rules.untrusted}" if self._rules.untrusted else ""
            folder = self.files.folder / "rules"
            yield f"the job's Prometheus runs without the rules in {folder}{why}"

    def _watch(self) -> None:
        if self._child is None:
            return
        status = reap(self._child)
        ran = self._clock.monotonic() - self._started
        if status is None:
            if ran > WELL_SECONDS:
                self._failures, self._problem = 0, ""
            self.files.bound_log()
            return
        words = self.files.last_words()
        self._problem = f"ended with status {status} after {ran:.0f} s: {words}"
        self._failures += 1
        wait = RETRY.delay(self._failures)
        log.warning(
            "prometheus (pid %d) %s; started again in %.0f s", self._child.pid, self._problem, wait
        )
        self._child = None
        self._mend(words)
        self._due = self._clock.monotonic() + wait
        self.restarts += 1

    def _mend(self, words: str) -> None:
        """Remove what it cannot start with, by its own log."""
        self._rules.refused(words)
        try:
            moved = self.files.set_aside(words)
        except OSError as error:
            log.warning("a corrupt block cannot be moved away: %s", error)
            return
        for path in moved:
            log.warning("a corrupt block was moved to %s", path)
        self._aside += moved

    def _reload_rules(self) -> None:
        """Have it read the user's rules again if they have changed."""
        if self._child is None:
            self._rules.changed()
            return
        if problem := self._rules.objection():
            self._problem = problem
            log.warning("prometheus goes on without the changed rules: %s", problem)
            self._write_files()  # it must be able to start again
        if self._rules.changed() and self._write_files():
            self._rules.mark_reload()
            self._problem = ""
            log.info("the rules in %s changed: prometheus reads them", self.files.folder / "rules")
            signals.send_child(self._child, signal.SIGHUP)

    def _check_disk(self) -> str:
        free = self.files.free_bytes()
        if free is None or free >= LOW_BYTES:
            return ""
        return (
            f"the disk of {self.files.folder} has {free >> 20} MiB left: what is scraped is lost; "
            "make room"
        )

    def _start(self) -> None:
        # Its lock is Prometheus's own business: whoever holds it keeps it, and we wait.
        if holder := lock_holder(self.files.data / "lock"):
            self._problem = f"process {holder} holds {self.files.data}; waiting for it to end"
            self._due = self._clock.monotonic() + RETRY.first
            return
        if not self._write_files():
            self._due = self._clock.monotonic() + RETRY.first
            return
        try:
            self._port = free_port(self._wanted_port)
            with open(self.files.log, "ab", opener=opener) as output:
                self._child = spawn(list(self._arguments()), stdout=output, stderr=output)
        except (MissingPartError, UnreachableError, OSError) as error:
            self._problem = f"cannot be started: {error}"
            self._due = self._clock.monotonic() + RETRY.most
            log.warning("prometheus %s", self._problem)
            return
        self._started = self._clock.monotonic()
        log.info(
            "prometheus %s started, pid %d, %s, data in %s",
            self.program.version_text,
            self._child.pid,
            self.url,
            self.files.data,
        )

    def _write_files(self) -> bool:
        """Write the files that it reads; False if the folder cannot be written."""
        try:
            keep_private(self.files.folder)
            keep_private(self.files.data)
            self.files.write_config(
                old_samples=self.program.takes_old_samples, own_rules=self._rules.used
            )
        except OSError as error:
            self._disk = f"{self.files.folder} cannot be written: {error.strerror}"
            return False
        return True

    def _arguments(self) -> Iterator[str]:
        yield self.program.path
        yield f"--config.file={self.files.config}"
        yield f"--storage.tsdb.path={self.files.data}"
        yield f"--web.listen-address=127.0.0.1:{self._port}"
        wanted = {
            "storage.tsdb.retention.time": f"={self._retention}",
            # Debian's package takes no lock unless told to: two could write the same data.
            _LOCK_FLAG: "",
            "log.level": "=info",
        }
        if self._max_bytes:
            wanted["storage.tsdb.retention.size"] = f"={self._max_bytes}B"
        for flag, value in wanted.items():
            if flag in self.program.flags:
                yield f"--{flag}{value}"
