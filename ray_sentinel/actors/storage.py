"""Where our files go, and how much of them is kept."""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
from collections.abc import Collection, Iterable, Mapping
from functools import partial
from pathlib import Path

from ray_sentinel.bounded import Bounded, within
from ray_sentinel.config import Config, safe_name

PATIENCE = 8.0
"""Seconds for a folder to answer: an automounter may take some."""


class Storage:
    """The folder of this deployment. ``notes`` says what people should know about it.

    A folder that hangs is like one that cannot be written, once ``patience`` seconds have passed.
    """

    def __init__(
        self,
        config: Config,
        environ: Mapping[str, str] = os.environ,
        patience: float = PATIENCE,
    ) -> None:
        self.wanted = config.directory()
        self._patience = patience
        self._making: Bounded[str, bool] = Bounded(patience, most=1)
        self.max_bytes = config.storage.max_bytes
        self.notes: list[str] = []
        self.root = self._first_writable(config)
        """None where nothing at all can be written: everything is kept in memory then."""
        if self.root is not None:
            self._warn_if_short_lived(environ)

    def _first_writable(self, config: Config) -> Path | None:
        fallback = Path(tempfile.gettempdir()) / f"ray_sentinel-{os.getuid()}"
        for root in (self.wanted, fallback / (safe_name(config.job) or "default")):
            problem = self._problem_of(root)
            if not problem:
                if root != self.wanted:
                    self.notes.append(f"files go to {root} instead")
                return root
            self.notes.append(
                f"the log folder {root} cannot be written ({problem}): set log_dir or "
                "RAY_SENTINEL_LOG_DIR to a folder that can"
            )
        self.notes.append("nothing can be written: incidents are kept in memory only")
        return None

    def _problem_of(self, root: Path) -> str:
        try:
            within(self._patience, partial(_probe, root))
        except OSError as error:
            return error.strerror or type(error).__name__
        return ""

    def _warn_if_short_lived(self, environ: Mapping[str, str]) -> None:
        if "KUBERNETES_SERVICE_HOST" not in environ or self.root is None:
            return
        root = self.root
        try:
            same = within(self._patience, lambda: root.stat().st_dev == Path("/").stat().st_dev)
        except OSError:
            return
        if same:
            self.notes.append(
                f"{self.root} is in the container's own file system and goes with the pod: "
                "set log_dir to a mounted volume"
            )

    def folder(self, name: str) -> Path | None:
        """A folder below the root, made if it is not there; None where it cannot be.

        Where the disk hangs meanwhile it is not made: whoever writes there makes it, too.
        """
        if self.root is None:
            return None
        path = self.root / name
        _, failed = self._making.run({"folder": partial(_make, path)})
        return None if failed and not self._making.stuck else path

    def prune(self, keep: Collection[Path], folders: Iterable[Path]) -> list[Path]:
        """Remove the oldest entries of ``folders`` until ``max_bytes`` are not exceeded.

        ``keep`` count but are never removed: open incidents, the log that is being written. Our own
        log files are bounded by their rotation. Returns what was removed.
        """
        entries = [entry for folder in folders for entry in _entries(folder)]
        sizes = {entry: size_of(entry) for entry in entries}
        total = sum(sizes.values())
        removed = []
        for entry in sorted(sizes.keys() - set(keep), key=_age_key):
            if total <= self.max_bytes:
                break
            if _remove(entry):
                total -= sizes[entry]
                removed.append(entry)
        return removed


def _entries(folder: Path) -> list[Path]:
    try:
        return list(folder.iterdir())
    except OSError:
        return []


def _probe(root: Path) -> None:
    """Raises OSError where nothing can be written."""
    root.mkdir(parents=True, exist_ok=True)
    with tempfile.NamedTemporaryFile(dir=root, prefix=".probe-") as probe:
        probe.write(b"x" * 4096)
        probe.flush()


def _make(path: Path) -> bool:
    path.mkdir(parents=True, exist_ok=True)
    return True


def size_of(path: Path) -> int:
    """Bytes of a file or of all files below a folder; what vanishes meanwhile counts nothing."""
    try:
        if not path.is_dir() or path.is_symlink():
            return path.lstat().st_size
        return sum(size_of(entry) for entry in path.iterdir())
    except OSError:
        return 0


def _age_key(path: Path) -> float:
    try:
        return path.stat().st_mtime
    except OSError:
        return 0.0


def _remove(path: Path) -> bool:
    """Whether it is gone; what cannot be removed, on a disk that is read-only say, stays."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        with contextlib.suppress(OSError):
            path.unlink(missing_ok=True)
    return not os.path.lexists(path)
