"""The command or Ray job that a supervisor runs."""

from __future__ import annotations

from pathlib import Path

import msgspec


class RunTask(msgspec.Struct, frozen=True, kw_only=True):
    """What to run, and where its files are."""

    argv: tuple[str, ...]
    job: str
    folder: Path
    checkpoint_dirs: tuple[Path, ...] = ()
    cwd: str = ""
    environ: dict[str, str] = {}
    max_output: int = 256 << 20
    """Most bytes of one output file; each attempt has two."""


class JobTask(msgspec.Struct, frozen=True, kw_only=True):
    """A job that was submitted to Ray and must be followed."""

    job_id: str
    checkpoint_dirs: tuple[Path, ...] = ()
    check_interval: float = 5.0
    """Seconds between two looks at the job."""
