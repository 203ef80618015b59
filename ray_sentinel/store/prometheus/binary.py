"""Finds the program of Prometheus, and what the installed one can do."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import msgspec

from ray_sentinel import regex as re
from ray_sentinel.errors import MissingPartError
from ray_sentinel.process import run

_NAME = "prometheus"
CACHE = Path("~/.cache/ray_sentinel/bin")
PROBE_SECONDS = 60.0
"""Seconds that the program may take to print its version or its help: it has 100 MB and more, and
may lie on a slow file system."""
OUT_OF_ORDER = (2, 39)
"""First version that accepts samples older than the newest."""
_VERSION = re.compile(r"^prometheus, version (\d+)\.(\d+)\.(\d+)", re.MULTILINE)
_FLAG = re.compile(r"--(?:\[no-\])?([a-z][\w.-]+)")


class Program(msgspec.Struct, frozen=True):
    """A Prometheus program that can be run."""

    path: str
    version: tuple[int, int, int]
    flags: frozenset[str]
    """The program's options as its help names them, without their dashes."""

    @property
    def takes_old_samples(self) -> bool:
        """Whether steps can be stored with the times at which they were done."""
        return self.version >= OUT_OF_ORDER

    @property
    def version_text(self) -> str:
        """The version as text, such as 2.53.4."""
        return ".".join(map(str, self.version))


def find_prometheus(option: str = "") -> str:
    """The path of Prometheus's program: from the option, PATH, or our cache.

    ``option`` may name the program itself or its folder. Raises MissingPartError with the command
    that installs it.
    """
    if option:
        given = Path(option).expanduser()
        given = given / _NAME if given.is_dir() else given.with_name(_NAME)
        if os.access(given, os.X_OK) and given.is_file():
            return str(given)
        raise MissingPartError(f"{given} is not a program that can be run")
    if found := shutil.which(_NAME):
        return found
    cached = CACHE.expanduser() / _NAME
    if os.access(cached, os.X_OK):
        return str(cached)
    raise MissingPartError(
        "the program prometheus is not installed: `apt-get install prometheus`, or "
        f"`ray-sentinel prometheus download` (into {CACHE}), or name it: --prometheus PATH with "
        "`up`, --binary PATH elsewhere"
    )


def version_of(path: str) -> tuple[int, int, int]:
    """The version that a program reports. Raises MissingPartError if it is not a Prometheus."""
    told = run([path, "--version"], deadline=PROBE_SECONDS)
    text = (told.stdout + told.stderr).decode("utf-8", "replace")
    found = _VERSION.search(text)
    if found is None:
        said = text.strip().splitlines()[:1] or [told.explain()]
        raise MissingPartError(f"{path} is not Prometheus: it says {said[0][:200]!r}")
    return int(found[1]), int(found[2]), int(found[3])


def probe(path: str) -> Program:
    """Find out what a program is and can do. Raises MissingPartError if it is not a Prometheus."""
    version = version_of(path)
    helped = run([path, "--help"], deadline=PROBE_SECONDS)
    flags = frozenset(_FLAG.findall((helped.stdout + helped.stderr).decode("utf-8", "replace")))
    return Program(path, version, flags)
