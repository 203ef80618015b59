"""Facts about logs: a line of that kind is fed to the triage."""

from __future__ import annotations

import os
from functools import lru_cache
from pathlib import Path

from ray_sentinel.evidence.logs.errors.catalogue import Catalogue
from ray_sentinel.logs.catalogue import load_catalogue
from ray_sentinel.logs.find import find_logs
from ray_sentinel.logs.triage import triage_path
from ray_sentinel.model.triage import Triage
from tests.support.inventory.row import Check

CALM = "2025-01-02 10:00:00 INFO starting\n"
"""What the same job prints where nothing is wrong."""


@lru_cache(maxsize=1)
def catalogue() -> Catalogue:
    """The package's own; loaded once."""
    return load_catalogue()


def triaged(folder: Path, text: str, name: str = "job.log") -> Triage:
    """What the triage says of a log that begins calmly and goes on with ``text``."""
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(CALM + text + "\n", encoding="utf-8")
    return triage_path(folder, catalogue(), now=0.0)


def log(kind: str, *lines: str, says: tuple[str, ...] = (), playbook: str = "") -> Check:
    """The lines are a failure of ``kind``, with ``says`` in cause or next steps; without them the
    job is not."""

    def run(folder: Path) -> None:
        for number, line in enumerate(lines):
            found = triaged(folder / f"{number}", line)
            assert found.kind == kind, (found.kind, line)
            assert triaged(folder / f"calm-{number}", "").kind != kind
            told = " ".join((found.cause, *found.next_steps)).lower()
            missing = [word for word in says if word.lower() not in told]
            assert not missing, (missing, told)
            assert not playbook or found.playbook == playbook

    return Check(f"triage: {kind}", run)


def remedy(line: str, *says: str) -> Check:
    """What is told to do about a failure that shows itself by ``line``."""

    def run(folder: Path) -> None:
        found = triaged(folder / "failed", line)
        told = " ".join(found.next_steps).lower()
        calm = " ".join(triaged(folder / "calm", "").next_steps).lower()
        missing = [word for word in says if word.lower() not in told]
        assert not missing, (missing, told)
        assert not all(word.lower() in calm for word in says), "said of every job"

    return Check("triage: next steps", run)


def harmless(*lines: str) -> Check:
    """The lines look like trouble and are none; what is left of each, shortened, is unknown."""

    def run(folder: Path) -> None:
        for number, line in enumerate(lines):
            found = triaged(folder / f"{number}", line)
            assert [echo.kind for echo in found.echoes] == ["harmless"], line
            assert found.kind == triaged(folder / f"calm-{number}", "").kind

    return Check("triage: harmless lines", run)


def explained(line: str, *says: str) -> Check:
    """The catalogue says what a harmless line means, and of a line without it nothing."""

    def run(folder: Path) -> None:
        found = catalogue().harmless(line)
        assert found is not None
        told = " ".join((found.cause, *found.remedy)).lower()
        assert not [word for word in says if word.lower() not in told], told
        assert catalogue().harmless(CALM) is None

    return Check("triage: harmless lines", run)


def stalled(name: str, line: str, silent: float, *says: str) -> Check:
    """A running job that has been silent for so many seconds in a phase hangs, with ``says`` in
    what is told; half a minute into it, it does not."""
    begin = 1_746_093_600.0

    def run(folder: Path) -> None:
        path = folder / "job.log"
        path.write_text(f"2025-05-01 10:00:00,000 INFO {line}\n", encoding="utf-8")
        os.utime(path, (begin, begin))
        found = triage_path(folder, catalogue(), live=True, now=begin + silent)
        assert (found.kind, found.phase) == ("hang", name)
        told = " ".join((found.cause, *found.next_steps)).lower()
        assert not [word for word in says if word.lower() not in told], told
        young = triage_path(folder, catalogue(), live=True, now=begin + 30)
        assert (young.kind, young.phase) == ("running", name)

    return Check("triage: hang", run)


def phase(name: str, *lines: str, usual: float | None = None) -> Check:
    """The lines show that the job is in a phase; ``usual``: at least so many seconds are given."""

    def run(folder: Path) -> None:
        for number, line in enumerate(lines):
            found = triaged(folder / f"{number}", f"2025-01-02 10:00:05 INFO {line}")
            assert found.phase == name, (found.phase, line)
            assert triaged(folder / f"calm-{number}", "").phase != name
        if usual is not None:
            marks = [item.mark for item in catalogue().marks if item.mark.phase == name]
            assert any((mark.usual_seconds or 0) >= usual for mark in marks)

    return Check(f"triage: phase {name}", run)


def note(identity: str, line: str, other: str) -> Check:
    """The line is known by its own entry, and ``other``, which resembles it, is not."""

    def run(folder: Path) -> None:
        found = catalogue().search(line)
        assert found is not None
        assert found.signature.id == identity
        unlike = catalogue().search(other)
        assert unlike is None or unlike.signature.id != identity

    return Check(f"triage: {identity}", run)


def steps(line: str, last: int) -> Check:
    """A line of progress: the step is read."""

    def run(folder: Path) -> None:
        assert triaged(folder / "at", line).progress.last_step == last
        assert triaged(folder / "calm", "").progress.last_step is None

    return Check("triage: progress", run)


def file_kind(name: str, kind: str, rank: int | None = None) -> Check:
    """A log of that name, below a job's folder, is read for what it is."""

    def run(folder: Path) -> None:
        path = folder / "job" / name
        path.parent.mkdir(parents=True)
        path.write_text(CALM, encoding="utf-8")
        (found,) = find_logs(folder / "job")
        assert found.file.kind == kind
        assert found.file.origin.rank == rank

    return Check("logs: kinds of files", run)
