"""The files of a job's Prometheus: its configuration, its targets and its log."""

from __future__ import annotations

import logging
import os
import shutil
from collections.abc import Mapping
from pathlib import Path

from ray_sentinel import regex as re
from ray_sentinel.config import ScrapeConfig
from ray_sentinel.store.alerts_and_dashboards import RULES_FILE, rules_file
from ray_sentinel.store.prometheus.scrape_config import (
    TargetDiscovery,
    ray_targets_file,
    scrape_config,
    targets_file,
)
from ray_sentinel.store.prometheus.tsdb import ULID
from ray_sentinel.trusted_path import UntrustedPathError, check_trusted_file
from ray_sentinel.whole_file import write_whole

log = logging.getLogger(__name__)

MAX_LOG_BYTES = 16 << 20
"""Most bytes of Prometheus' log; the log before it is kept too, and takes as much."""
LOW_BYTES = 64 << 20
"""Free bytes below which samples will sooner or later be lost."""
_BAD_RULES = "loading groups failed"
_NO_STORAGE = "opening storage failed"
_FAULT = re.compile(r"level=(?:error|ERROR)|fatal|panic|error:")

RuleFiles = tuple[tuple[str, int, int, int], ...]


class JobFiles:
    """The folder of a job's Prometheus. Writing raises OSError."""

    def __init__(self, folder: Path, scrape: ScrapeConfig | None = None) -> None:
        self.folder = folder
        self.data = folder / "data"
        """Where its database is."""
        self.log = folder / "prometheus.log"
        """Its log."""
        self.config = folder / "prometheus.yml"
        """Its configuration file."""
        self._scrape = scrape or ScrapeConfig()
        self._written: dict[str, bytes] = {}

    def write_targets(self, agents: tuple[str, ...], ray: Mapping[str, str]) -> None:
        """Write the list of targets; Prometheus watches these files by itself."""
        self._write("agents.json", targets_file(agents))
        self._write("ray.json", ray_targets_file(ray))

    def write_config(self, *, old_samples: bool, own_rules: bool) -> None:
        """Write its configuration, with our rules, and with the user's if they are valid."""
        where = TargetDiscovery(
            kind="file",
            agents=str(self.folder / "agents.json"),
            ray=str(self.folder / "ray.json"),
            scrape=self._scrape,
        )
        rules = [str(self.folder / RULES_FILE)]
        if own_rules:
            rules.append(str(self.folder / "rules" / "*.yml"))
        self._write(RULES_FILE, rules_file().encode())
        text = scrape_config(where, rules=rules, old_samples=old_samples)
        self._write(self.config.name, text.encode())

    def user_rules(self) -> RuleFiles:
        """The user's rule files: name, size, and when the file and its permissions were last
        changed."""
        found = []
        for path in sorted((self.folder / "rules").glob("*.yml")):
            try:
                status = path.stat()
            except OSError:
                continue  # it has just gone
            times = status.st_mtime_ns, status.st_ctime_ns
            found.append((path.name, status.st_size, *times))
        return tuple(found)

    def untrusted_rules(self) -> str:
        """Why the user's rules are not used: other users can have written them; otherwise empty."""
        try:
            for path in (self.folder / "rules").glob("*.yml"):
                check_trusted_file(path)
        except UntrustedPathError as error:
            return str(error)
        except OSError as error:
            log.debug("a rule file has just gone: %s", error)
        return ""

    def free_bytes(self) -> int | None:
        """Bytes left for the data; None if unknown."""
        try:
            return shutil.disk_usage(self.folder).free
        except OSError:
            return None

    def bound_log(self) -> None:
        """Keep the log, and one before it, below ``MAX_LOG_BYTES``."""
        try:
            if self.log.stat().st_size > MAX_LOG_BYTES:
                shutil.copyfile(self.log, self.log.with_suffix(".log.1"))
                os.truncate(self.log, 0)  # it is written by appending
        except OSError as error:
            log.debug("the log of prometheus was not cut: %s", error)

    def log_size(self) -> int:
        """Bytes of the log."""
        try:
            return self.log.stat().st_size
        except OSError:
            return 0

    def last_words(self, since: int = 0) -> str:
        """The line of the log that best says what went wrong; empty if there is none.

        Only what was logged after byte ``since`` counts, and at most the last 8 KiB.
        """
        try:
            with self.log.open("rb") as file:
                file.seek(max(since, os.fstat(file.fileno()).st_size - 8192))
                lines = file.read().decode("utf-8", "replace").strip().splitlines()
        except OSError:
            return ""
        for sign in (_BAD_RULES, _FAULT):
            for line in reversed(lines):
                if sign in line if isinstance(sign, str) else sign.search(line):
                    return line[-400:]
        return lines[-1][-400:] if lines else ""

    def blames_rules(self, words: str) -> bool:
        """Whether the end of its log is about the user's rules."""
        return _BAD_RULES in words and str(self.folder / "rules") in words

    def set_aside(self, words: str) -> list[str]:
        """Move away the blocks that the end of its log calls corrupt. Returns where they are now.

        Nothing is deleted: with one such block in its place Prometheus would not start at all.
        """
        moved = []
        for block in self.data.iterdir() if _NO_STORAGE in words and self.data.is_dir() else ():
            if ULID.match(block.name) and block.name in words:
                target = self.folder / "broken" / block.name
                target.parent.mkdir(exist_ok=True)
                block.rename(target)
                moved.append(str(target))
        return moved

    def _write(self, name: str, data: bytes) -> None:
        """Replace a file whole, if it is another now."""
        if self._written.get(name) == data and (self.folder / name).exists():
            return
        self.folder.mkdir(parents=True, exist_ok=True)
        write_whole(self.folder / name, data, mode=0o666)
        self._written[name] = data
