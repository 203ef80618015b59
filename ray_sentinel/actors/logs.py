"""Our own log files: ``logs/<name>.log``, rotated; Ray's log of the actor has them too."""

from __future__ import annotations

import logging
from logging.handlers import RotatingFileHandler
from pathlib import Path

MAX_BYTES = 8 << 20
"""Of one file, before it is rotated."""
BACKUPS = 2
"""Rotated files that are kept beside it."""

_FORMAT = "%(asctime)s %(levelname)s %(name)s: %(message)s"


def write_logs(folder: Path | None, name: str) -> None:
    """Send the package's log records to ``folder/name.log`` and to stderr, from INFO on."""
    logger = logging.getLogger("ray_sentinel")
    logger.setLevel(logging.INFO)
    logger.propagate = False
    for old in list(logger.handlers):
        logger.removeHandler(old)
    handlers: list[logging.Handler] = [logging.StreamHandler()]
    if folder is not None:
        try:
            folder.mkdir(parents=True, exist_ok=True)
            handlers.append(
                RotatingFileHandler(
                    folder / f"{name}.log", maxBytes=MAX_BYTES, backupCount=BACKUPS, delay=True
                )
            )
        except OSError as error:
            logger.warning("no log file in %s: %s", folder, error)
    for handler in handlers:
        handler.setFormatter(logging.Formatter(_FORMAT))
        logger.addHandler(handler)
