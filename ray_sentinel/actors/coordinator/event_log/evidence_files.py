"""Evidence that is too large for a line of the event log: files beside its segments.

A file is named by the digest of what is in it, so evidence that has not changed since the last look
(of a job that hangs) takes no second file, and a damaged file is recognised. It is written before
the line that names it, under another name until it is complete. All files together are bounded, and
those that were named longest ago go first; the line that named one stays, and a replay says that
its evidence is gone.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
from pathlib import Path

import msgspec

from ray_sentinel import regex as re
from ray_sentinel.engine.events import AnyEvent, EvidenceEvent, KeptEvidence
from ray_sentinel.errors import InputError
from ray_sentinel.private_files import opener, read_private

SMALL = 64 << 10
"""Most bytes of evidence that are in the event itself: some 70 ranks' recorders."""
LARGE = 16 << 20
"""Most bytes of evidence that are kept: twice those of 8,192 ranks' recorders."""
EVIDENCE_SHARE = 4
"""Files of evidence take at most one part in so many of the bytes that a log may take."""
_SUFFIX, _PART = ".evidence", ".part"
_DIGEST = 32
_NAME = re.compile(rf"[0-9a-f]{{{_DIGEST}}}\.evidence(?P<part>\.part)?", re.ASCII)


def kept(data: bytes) -> KeptEvidence:
    """How a look's packed evidence is kept."""
    if len(data) <= SMALL:
        return KeptEvidence(data=data)
    if len(data) > LARGE:
        return too_large(len(data))
    return KeptEvidence(data=data, file=_digest(data) + _SUFFIX)


def too_large(size: int) -> KeptEvidence:
    """Evidence that is not kept; ``size`` are its bytes."""
    return KeptEvidence(left_out=f"its {size / 1e6:.0f} MB were too large")


def detached(event: AnyEvent) -> tuple[AnyEvent, KeptEvidence | None]:
    """The event as the log has it, and the evidence that goes into a file; None if none does."""
    if not isinstance(event, EvidenceEvent):
        return event, None
    evidence = event.judged_from
    if evidence is None or not evidence.file:
        return event, None
    named = msgspec.structs.replace(evidence, data=b"")
    return msgspec.structs.replace(event, judged_from=named), evidence


def read_evidence(folder: Path, evidence: KeptEvidence) -> bytes:
    """The packed evidence of an event in the log in ``folder``. Raises InputError if it is not kept
    there, or damaged."""
    if evidence.left_out:
        raise InputError(f"what it was made of was not kept: {evidence.left_out}")
    if not evidence.file:
        if len(evidence.data) > LARGE:
            raise InputError(
                f"it has {len(evidence.data) / 1e6:.0f} MB, more than any that is kept"
            )
        return evidence.data
    match = _NAME.fullmatch(evidence.file)
    if match is None or match["part"]:
        raise InputError("its file has a name that no version of ray_sentinel gives")
    data = read_private(folder / evidence.file, LARGE + 1)
    if not data:
        raise InputError(f"{folder / evidence.file} is not there, or cannot be read")
    if _digest(data) + _SUFFIX != evidence.file:
        raise InputError(f"{folder / evidence.file} is damaged")
    return data


def is_evidence_file(name: str) -> bool:
    """Whether a log has files of evidence of that name, also half-written ones."""
    return _NAME.fullmatch(name) is not None


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()[:_DIGEST]


class EvidenceFiles:
    """The files of one log. Not safe for several threads or processes."""

    def __init__(self, folder: Path, most_bytes: int) -> None:
        """``most_bytes`` bounds all files together."""
        self._folder = folder
        self._most_bytes = most_bytes

    def keep(self, evidence: KeptEvidence) -> None:
        """Write the evidence into its file, and delete the oldest ones to make room. Evidence that
        takes more than all files may is left out. Raises OSError."""
        if len(evidence.data) > self._most_bytes:
            return
        path = self._folder / evidence.file
        with contextlib.suppress(FileNotFoundError):
            if path.stat().st_size == len(evidence.data):
                os.utime(path)
                return
        partial = path.with_name(path.name + _PART)
        partial.unlink(missing_ok=True)
        self.make_room(len(evidence.data))
        try:
            with open(partial, "xb", opener=opener) as file:
                file.write(evidence.data)
            os.replace(partial, path)
        except OSError:
            with contextlib.suppress(OSError):
                partial.unlink(missing_ok=True)
            raise

    @property
    def size(self) -> int:
        """Bytes of all files."""
        return sum(info.st_size for _, info in self._files())

    def make_room(self, size: int = 0) -> None:
        """Delete what was left half-written, and the oldest files until ``size`` more bytes fit.
        Raises OSError."""
        files = sorted(
            self._files(), key=lambda one: (not one[0].name.endswith(_PART), one[1].st_mtime_ns)
        )
        total = size + sum(info.st_size for _, info in files)
        for path, info in files:
            if total > self._most_bytes or path.name.endswith(_PART):
                path.unlink(missing_ok=True)
                total -= info.st_size

    def _files(self) -> list[tuple[Path, os.stat_result]]:
        found: list[tuple[Path, os.stat_result]] = []
        with contextlib.suppress(OSError), os.scandir(self._folder) as entries:
            found += (
                (Path(entry.path), entry.stat(follow_symlinks=False))
                for entry in entries
                if is_evidence_file(entry.name)
            )
        return found
