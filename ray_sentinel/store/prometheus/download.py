"""Downloads Prometheus: one pinned release, whose checksum is verified before any of it is used.

Only on request: nothing else in this package downloads anything. The checksums were taken from
public repositories that pin the same archives (amd64 from two that agree, arm64 from one), not from
the release's ``sha256sums.txt``: a wrong one rejects the archive, it never accepts another.
"""

from __future__ import annotations

import hashlib
import http.client
import os
import platform
import shutil
import tarfile
import tempfile
import urllib.error
import urllib.request
from collections.abc import Mapping
from pathlib import Path
from typing import IO

import msgspec

from ray_sentinel.errors import InputError, MissingPartError, UnreachableError
from ray_sentinel.store.prometheus.binary import CACHE

PROGRAMS = ("prometheus", "promtool")
DEADLINE = 60.0
"""Seconds within which the next data must arrive."""
CHUNK = 1 << 20
"""Bytes read at once."""
_MACHINES = {"x86_64": "amd64", "amd64": "amd64", "aarch64": "arm64", "arm64": "arm64"}


class Release(msgspec.Struct, frozen=True):
    """A release of Prometheus for Linux; checksums (SHA-256) by architecture."""

    version: str
    checksums: Mapping[str, str]
    base: str = "https://github.com/prometheus/prometheus/releases/download"

    def name(self, architecture: str) -> str:
        """The archive's name."""
        return f"prometheus-{self.version}.linux-{architecture}"

    def url(self, architecture: str) -> str:
        """URL of the archive."""
        return f"{self.base.rstrip('/')}/v{self.version}/{self.name(architecture)}.tar.gz"


PINNED = Release(
    "2.53.4",
    {
        "amd64": "b8b497c4610d1b93208252b60c8f20f6b2e78596ae8df43397a2e805aa53d475",
        "arm64": "ec7236ecea7154d0bfe142921708b1ae7b5e921e100e0ee85ab92b7c444357e0",
    },
)
"""The release that is downloaded, of the 2.53 long-term line. The tests run against Debian's
Prometheus, not this one."""


def download(
    folder: Path | None = None,
    *,
    release: Release = PINNED,
    machine: str = "",
    archive: Path | None = None,
) -> list[Path]:
    """Put prometheus and promtool into ``folder`` (by default our cache, where they are searched
    for).

    ``archive`` is a local copy of the release. Raises MissingPartError if there is no release for
    this machine, UnreachableError without network, InputError if the archive is not the expected
    one: then nothing was installed.
    """
    machine = machine or platform.machine()
    architecture = _MACHINES.get(machine.lower(), "")
    if architecture not in release.checksums:
        raise MissingPartError(
            f"there is no checksum for Prometheus on {machine}: install it by hand"
        )
    folder = folder if folder is not None else CACHE.expanduser()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder) as scratch:
            where = str(archive) if archive else release.url(architecture)
            _fetch(archive, where, scratch)
            _check(scratch, release.checksums[architecture], where)
            return _unpack(scratch, release.name(architecture), folder, where)
    except OSError as error:
        raise InputError(f"{folder} cannot be written: {error.strerror or error}") from None


def _fetch(archive: Path | None, where: str, target: IO[bytes]) -> None:
    if archive is not None:
        try:
            source: IO[bytes] = archive.open("rb")
        except OSError as error:
            raise InputError(f"{archive} cannot be read: {error.strerror}") from None
        with source:
            shutil.copyfileobj(source, target)
        return
    try:
        with urllib.request.urlopen(where, timeout=DEADLINE) as answer:
            shutil.copyfileobj(answer, target)
    except urllib.error.HTTPError as error:
        raise UnreachableError(f"{where} cannot be had: HTTP {error.code}") from None
    except (urllib.error.URLError, http.client.HTTPException, TimeoutError) as error:
        reason = getattr(error, "reason", error)
        raise UnreachableError(
            f"{where} cannot be had: {reason}. Without network, bring the archive here and give "
            "it with --archive FILE, or `apt-get install prometheus`"
        ) from None


def _check(file: IO[bytes], checksum: str, where: str) -> None:
    """Raises InputError if the file has another checksum."""
    file.seek(0)
    digest = hashlib.sha256()
    while data := file.read(CHUNK):
        digest.update(data)
    if digest.hexdigest() != checksum:
        raise InputError(
            f"{where} is not the release: its SHA-256 is {digest.hexdigest()}, and must be "
            f"{checksum}; nothing was installed"
        )


def _unpack(file: IO[bytes], root: str, folder: Path, where: str) -> list[Path]:
    file.seek(0)
    try:
        with tarfile.open(fileobj=file, mode="r:gz") as archive:
            return [_install(archive, f"{root}/{name}", folder / name) for name in PROGRAMS]
    except (tarfile.TarError, EOFError, KeyError) as error:
        raise InputError(f"{where} has not what it should have: {error}") from None


def _install(archive: tarfile.TarFile, member: str, target: Path) -> Path:
    source = archive.extractfile(member)
    if source is None:
        raise KeyError(f"{member} is no file")
    scratch = target.with_name(f".{target.name}.new")
    with source, scratch.open("wb") as program:
        shutil.copyfileobj(source, program)
    os.chmod(scratch, 0o755)
    scratch.replace(target)
    return target
