"""The folder of one incident: ``incidents/<utc>-<kind>-<n>/``.

A folder appears under its name only when it holds ``incident.json``; every file appears whole.
Nothing is ever overwritten by another incident: where the name is taken, a number is added. Its
file ``.deployment`` says who made it (see ``pruning``).
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Mapping
from datetime import datetime, timezone
from hashlib import sha256
from pathlib import Path
from typing import NamedTuple

import msgspec

from ray_sentinel import regex as re
from ray_sentinel.config import safe_name
from ray_sentinel.model.incident import Incident
from ray_sentinel.private_files import keep_private, make_private, read_private
from ray_sentinel.report.contract import incident_json
from ray_sentinel.whole_file import write_whole

MAX_FILE = 32 << 20
"""Most bytes of one file; the rest is cut off, and the file says so."""
MAX_BUNDLE = 512 << 20
"""Most bytes that one capture adds; further files are left out."""
MARK = ".deployment"
"""The name of the file in a bundle that names the deployment which made it."""

_SAME_SECONDS = 1e-3
"""Seconds by which equal times may differ through rounding, after additions and subtractions."""
_NUMBER = re.compile(r"-(\d{4,9})(?:-\d{1,3})?$")
_NAME = re.compile(r"[A-Za-z0-9._-][A-Za-z0-9._-]*")


def folder_name(incident: Incident) -> str:
    """``20260102T030405Z-gil-held-0007``."""
    moment = datetime.fromtimestamp(incident.suspected_at, tz=timezone.utc)
    return f"{moment:%Y%m%dT%H%M%SZ}-{incident.kind}-{safe_name(incident.id)}"


def create(root: Path, incident: Incident, deployment: str = "") -> Path:
    """Create the folder of a new incident, with its ``incident.json``. Raises OSError."""
    make_private(root)
    name = folder_name(incident)
    partial = root / temporary_name(name, deployment, "part")
    keep_private(partial)
    write_file(partial / MARK, f"{deployment}\n".encode())
    for number in range(1, 1000):
        final = root / (name if number == 1 else f"{name}-{number}")
        named = msgspec.structs.replace(incident, bundle=str(final))
        write_file(partial / "incident.json", incident_json(named))
        try:
            # Renaming a folder onto another fails unless that is empty: nothing is overwritten.
            os.rename(partial, final)
        except OSError:
            if not final.exists():
                raise
            continue
        return final
    raise FileExistsError(f"{root / name} and 999 more are taken")


def highest_number(root: Path | None) -> int:
    """The highest number of an incident that has a folder below ``root``; 0 without any."""
    if root is None:
        return 0
    try:
        names = [path.name for path in root.iterdir()]
    except OSError:
        return 0
    return max((int(match[1]) for name in names if (match := _NUMBER.search(name))), default=0)


def find(root: Path, incident: Incident, deployment: str = "") -> Path | None:
    """The folder that an earlier coordinator of this deployment made for this very incident."""
    for path in sorted(root.glob(f"*-{safe_name(incident.id)}*/incident.json")):
        if path.parent.is_symlink() or made_by(path.parent) not in (deployment, ""):
            continue
        try:
            stored = msgspec.json.decode(read_private(path, MAX_FILE), type=Incident)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            continue
        if stored.id == incident.id and abs(_steady(stored) - _steady(incident)) < _SAME_SECONDS:
            return path.parent
    return None


def _steady(incident: Incident) -> float:
    """When it was suspected, unaffected by how the wall clock was set since."""
    return incident.suspected_at - incident.clock_shift


def temporary_name(bundle: str, deployment: str, what: str) -> str:
    """The name of a bundle that is incomplete (``part``) or half removed (``gone``)."""
    return f".{bundle}.{deployment}.{os.getpid()}.{what}"


def made_by(folder: Path) -> str:
    """The deployment that created a bundle; empty if unknown: an earlier version did."""
    return read_private(folder / MARK, 100).split(b"\n", 1)[0].decode("ascii", "replace")


def write_file(path: Path, data: bytes) -> None:
    """Write a file atomically, truncated if it is too long. Raises OSError."""
    if len(data) > MAX_FILE:
        note = f"\n[cut off here: {len(data)} bytes are more than {MAX_FILE}]\n".encode()
        data = data[: MAX_FILE - len(note)] + note
    write_whole(path, data)


def capture_folder(number: int) -> str:
    """Where the files of an incident's first, second, ... capture go: its folder itself, then
    ``look_2/``, ``look_3/``. So no capture is overwritten by a later one."""
    return f"look_{number}/" if number > 1 else ""


def last_capture(folder: Path) -> int:
    """The number of the last capture with files in the folder; 0 without any."""
    looks = [int(p.name[5:]) for p in folder.glob("look_*") if p.name[5:].isdecimal()]
    first = any(folder.glob("*_*_*.txt")) or any(folder.glob("logs/rank-*"))
    return max(looks, default=int(first))


class Written(NamedTuple):
    """The result of writing into an incident's folder."""

    folder: Path | None
    """The incident's folder; None where it could not be made."""
    problems: list[str]
    """What went wrong, in lines for people."""
    left: dict[str, bytes]
    """Files that the disk did not take, by their names in the folder; it may take them later."""


def put(folder: Path, files: Mapping[str, bytes]) -> Written:
    """Add the files that the tools produced.

    ``files`` are named relative to the folder (``flight_recorder/dump_0``); names that lead out of
    it are refused. Equal contents are stored once, as hard links.
    """
    problems: list[str] = []
    left: dict[str, bytes] = {}
    seen: dict[bytes, Path] = {}
    room = MAX_BUNDLE
    for name, data in sorted(files.items()):
        path = _inside(folder, name)
        if path is None:
            problems.append(f"{name!r} is no name for a file of a bundle")
            continue
        if len(data) > room:
            problems.append(f"{name} was left out: the bundle would exceed {MAX_BUNDLE} bytes")
            continue
        room -= len(data)
        try:
            make_private(path.parent)
            _store(path, data, seen)
        except OSError as error:
            problems.append(f"{path} could not be written: {error.strerror}")
            left[name] = data
    return Written(folder, problems, left)


def read(folder: Path, names: Iterable[str]) -> dict[str, bytes]:
    """Those of the named files that exist and can be read."""
    found: dict[str, bytes] = {}
    for name in names:
        with contextlib.suppress(OSError):
            found[name] = (folder / name).read_bytes()
    return found


def _store(path: Path, data: bytes, seen: dict[bytes, Path]) -> None:
    digest = sha256(data).digest()
    if data and (same := seen.get(digest)) is not None:
        try:
            path.unlink(missing_ok=True)
            os.link(same, path)
            return
        except OSError:
            pass  # no hard links on this file system: a copy then
    write_file(path, data)
    seen[digest] = path


def _inside(folder: Path, name: str) -> Path | None:
    parts = name.split("/")
    if len(parts) > 4 or any(
        part in ("", ".", "..") or not _NAME.fullmatch(part) for part in parts
    ):
        return None
    return folder.joinpath(*parts)
