"""One bounded log file per collector. The folder may hang: see ``log_files``."""

from __future__ import annotations

import time
from pathlib import Path

from ray_sentinel.log_files import LogFiles
from ray_sentinel.masking import mask

MAX_BYTES = 1 << 20
"""Of one file; the one before it is kept as ``.1``, so a collector has at most twice as much."""


class Logbook:
    """Lines go to ``folder/collector-NAME.log``; None writes nothing."""

    def __init__(self, folder: Path | None, *, max_bytes: int = MAX_BYTES) -> None:
        self._files = LogFiles(folder, max_bytes=max_bytes) if folder is not None else None

    def write(self, name: str, text: str) -> None:
        """Note a line of collector ``name``; never waits."""
        if self._files is not None:
            stamp = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
            self._files.write(f"collector-{name}", f"{stamp} {mask(text)}")

    @property
    def problem(self) -> str:
        """What people should know of these logs; empty while all is well."""
        return self._files.problem if self._files is not None else ""

    def close(self, timeout: float = 1.0) -> None:
        """Write what is waiting, for at most ``timeout`` seconds."""
        if self._files is not None:
            self._files.close(timeout)
