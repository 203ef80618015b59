"""The folder for the deployment's files."""

from __future__ import annotations

import os
import stat
import tempfile
from collections.abc import Mapping
from functools import partial
from pathlib import Path

from ray_sentinel.bounded import Bounded, within
from ray_sentinel.config import Config, safe_name
from ray_sentinel.private_files import make_private, tighten
from ray_sentinel.trusted_path import claim_private_folder, trusted_uids

PATIENCE = 8.0
"""Seconds that a folder has to answer: an automounter may need some."""
_WRITABLE_BY_OTHERS = stat.S_IWGRP | stat.S_IWOTH


class DeploymentStorage:
    """The folder of this deployment. ``notes`` says what people should know about it.

    A folder that we create is private (0700). An existing log folder keeps its mode, because it may
    be shared; what we create below it is private. A folder that hangs is treated like one that
    cannot be written, after ``patience`` seconds.
    """

    def __init__(
        self,
        config: Config,
        environ: Mapping[str, str] = os.environ,
        patience: float = PATIENCE,
        *,
        deployment: str = "",
    ) -> None:
        """``deployment`` owns the files."""
        self.deployment = deployment
        self.wanted = config.directory()
        self._patience = patience
        self._making: Bounded[str, bool] = Bounded(patience, most=1)
        self.max_bytes = config.storage.max_bytes
        self.notes: list[str] = []
        self._owner = os.geteuid()
        """The owner of the files that we create there: a file server may call us somebody else."""
        self.root = self._first_writable(config)
        """The folder for everything; None where nothing can be written at all: everything is then
        kept in memory."""
        if self.root is not None:
            self._warn_if_short_lived(environ)
            self._warn_if_open(self.root)

    def _first_writable(self, config: Config) -> Path | None:
        name = safe_name(config.job) or "default"
        root = Path(tempfile.gettempdir()) / f"ray_sentinel-{os.getuid()}" / name
        problem = self._problem_of(self.wanted)
        if not problem:
            if not self._continues_in(root):
                return self.wanted
            self.notes.append(
                f"files go to {root}, as since {self.wanted} could not be written; now it can: "
                "`ray-sentinel down` and `up` go back to it"
            )
            return root
        self._note_unwritable(self.wanted, problem)
        try:
            root = self._fallback() / name
            problem = self._problem_of(root)
        except OSError as error:
            problem = error.strerror or type(error).__name__
        if not problem:
            until = "`ray-sentinel down` and `up`" if self.deployment else "the agent is restarted"
            self.notes.append(f"files go to {root} instead, until {until}")
            return root
        self._note_unwritable(root, problem)
        self.notes.append("nothing can be written: incidents are kept in memory only")
        return None

    def _continues_in(self, root: Path) -> bool:
        """Whether this folder, and not the configured one, has this deployment's event log. A
        coordinator that was killed continues where its past is, even if the configured folder is
        usable by now."""
        if not self.deployment or root == self.wanted:
            return False

        def is_alone() -> bool:
            there, here = (place / "events" / self.deployment for place in (root, self.wanted))
            return there.is_dir() and not here.is_dir() and not claim_private_folder(root.parent)

        try:
            return within(self._patience, is_alone)
        except OSError:
            return False

    def _fallback(self) -> Path:
        """A folder of our own: the usual one, or a new one if somebody else created that."""
        folder = Path(tempfile.gettempdir()) / f"ray_sentinel-{os.getuid()}"
        if problem := within(self._patience, partial(claim_private_folder, folder)):
            self.notes.append(f"{folder} is not used: {problem}; remove it")
            return Path(tempfile.mkdtemp(prefix="ray_sentinel-"))
        return folder

    def _note_unwritable(self, root: Path, problem: str) -> None:
        self.notes.append(
            f"the log folder {root} cannot be written ({problem}): set log_dir or "
            "RAY_SENTINEL_LOG_DIR to a folder that can"
        )

    def _problem_of(self, root: Path) -> str:
        try:
            self._owner = within(self._patience, partial(_probe, root))
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

    def _warn_if_open(self, root: Path) -> None:
        try:
            mode = within(self._patience, root.stat).st_mode
        except OSError:
            return
        if mode & _WRITABLE_BY_OTHERS and not mode & stat.S_ISVTX:
            self.notes.append(
                f"others may write into the log folder {root}, and so move away what lies in it: "
                f"chmod go-w {root}, or set log_dir to a folder of your own"
            )

    def folder(self, name: str) -> Path | None:
        """A private folder below the root, created if missing; None if that is not possible.

        A folder of another user is not used, nor one that another user's link leads to. If the disk
        hangs meanwhile it is not created here: its writer creates it.
        """
        if self.root is None:
            return None
        path = self.root / name
        found, failed = self._making.run({"folder": partial(self._make, path)})
        if failed and not self._making.stuck:
            return None
        if found.get("folder", True):
            return path
        note = f"{path} belongs to somebody else and is not used: set log_dir to your own"
        if note not in self.notes:
            self.notes.append(note)
        return None

    def _make(self, path: Path) -> bool:
        """Create a folder, and return whether it may be used. Raises OSError if it cannot be
        created."""
        make_private(path)
        owners = {os.lstat(path).st_uid, path.stat().st_uid}
        trusted = trusted_uids()
        if trusted is not None and not owners <= trusted | {self._owner}:
            return False
        tighten(path)
        return True


def _probe(root: Path) -> int:
    """The id of the user to whom the files belong that we write there. Raises OSError."""
    make_private(root)
    with tempfile.NamedTemporaryFile(dir=root, prefix=".probe-") as probe:
        probe.write(b"x" * 4096)
        probe.flush()
        return os.fstat(probe.fileno()).st_uid
