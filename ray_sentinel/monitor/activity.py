"""Reports what the monitor's functions do: by logging, and in a dated log of each job.

``RAY_SENTINEL_LOG_LEVEL`` (DEBUG, INFO, WARNING, ERROR) and ``RAY_SENTINEL_LOG_FILE`` say what is
logged and where; ``TRAINING_MONITOR_LOG_LEVEL`` and ``TRAINING_MONITOR_LOG_FILE`` are accepted too.
"""

from __future__ import annotations

import logging
import os
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime, timezone
from pathlib import Path
from typing import IO

import msgspec

from ray_sentinel.config import load, safe_name
from ray_sentinel.errors import UsageError
from ray_sentinel.masking import mask
from ray_sentinel.private_files import FILE_MODE, keep_private, opener
from ray_sentinel.text import one_line

log = logging.getLogger("ray_sentinel.monitor")

LEVEL = ("RAY_SENTINEL_LOG_LEVEL", "TRAINING_MONITOR_LOG_LEVEL")
FILE = ("RAY_SENTINEL_LOG_FILE", "TRAINING_MONITOR_LOG_FILE")
_LEVELS = ("DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL")
_FORM = "%(asctime)s %(levelname)s %(message)s"

_lock = threading.Lock()
_users = 0
_before = logging.NOTSET
_handler: logging.Handler | None = None


class JobLog:
    """A job's activity in ``<log_dir>/run/<job>/monitor-YYYYMMDD.log`` (by UTC), one line each."""

    def __init__(self, job: str, root: Path | None = None) -> None:
        """``root`` is the log folder; that of the configuration unless given."""
        root = root or msgspec.structs.replace(load(), job=job).directory()
        self.folder = root / "run" / (safe_name(job) or "job")
        self._complained = False

    def note(self, text: str, level: int = logging.INFO) -> None:
        """Write a line, and log it. A failing disk does not end the watch."""
        text = mask(one_line(text))
        log.log(level, "%s", text)
        now = datetime.now(timezone.utc)
        line = f"{now:%Y-%m-%dT%H:%M:%SZ} {logging.getLevelName(level)} {text}\n"
        try:
            keep_private(self.folder)
            path = self.folder / f"monitor-{now:%Y%m%d}.log"
            with open(path, "a", encoding="utf-8", errors="replace", opener=opener) as file:
                file.write(line)
        except OSError as error:
            if not self._complained:
                self._complained = True
                log.warning(
                    "%s: %s: there is no log of this there; set RAY_SENTINEL_LOG_DIR to a folder "
                    "that can be written",
                    error.filename or self.folder,
                    error.strerror,
                )


@contextmanager
def logged(*, shown: bool = False, environ: Mapping[str, str] = os.environ) -> Iterator[None]:
    """Log as the variables say while the block runs. With ``shown``, log to standard output if
    neither they nor the program's own logging say where. Raises UsageError for an invalid level or
    file."""
    global _users
    with _lock:
        if _users == 0:
            _begin(shown, environ)
        _users += 1
    try:
        yield
    finally:
        with _lock:
            _users -= 1
            if _users == 0:
                _end()


def _begin(shown: bool, environ: Mapping[str, str]) -> None:
    global _handler, _before
    level, file = _level(environ), _first(FILE, environ)[1]
    _before = log.level
    if file:
        _handler = logging.StreamHandler(_opened(environ))
    elif (level is not None or shown) and not log.hasHandlers():
        _handler = logging.StreamHandler(sys.stdout)
    if _handler is not None:
        _handler.setFormatter(logging.Formatter(_FORM))
        log.addHandler(_handler)
    if _handler is not None or level is not None:
        log.setLevel(logging.INFO if level is None else level)


def _end() -> None:
    global _handler
    log.setLevel(_before)
    if _handler is None:
        return
    log.removeHandler(_handler)
    if isinstance(_handler, logging.StreamHandler) and _handler.stream is not sys.stdout:
        _handler.stream.close()
    _handler = None


def _first(names: tuple[str, ...], environ: Mapping[str, str]) -> tuple[str, str]:
    """The first of the variables that is set, and its value."""
    return next(((name, environ[name]) for name in names if environ.get(name)), ("", ""))


def _level(environ: Mapping[str, str]) -> int | None:
    name, value = _first(LEVEL, environ)
    if not value:
        return None
    if value.strip().upper() not in _LEVELS:
        raise UsageError(f"{name}={value}: is no level; there are {', '.join(_LEVELS)}")
    return int(logging.getLevelName(value.strip().upper()))


def _opened(environ: Mapping[str, str]) -> IO[str]:
    name, value = _first(FILE, environ)
    try:
        # The user's own path: it may be a link, such as /dev/stdout.
        return open(
            Path(value).expanduser(),
            "a",
            encoding="utf-8",
            errors="replace",
            opener=lambda path, flags: os.open(path, flags | os.O_CLOEXEC, FILE_MODE),
        )
    except OSError as error:
        raise UsageError(
            f"{name}={value}: {error.strerror}; name a file that can be written"
        ) from None
