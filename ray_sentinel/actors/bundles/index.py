"""Which folder belongs to which incident, and what goes into it."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterable, Mapping
from pathlib import Path

import msgspec

from ray_sentinel.actors.bundles import bundle
from ray_sentinel.actors.bundles.bundle import Written
from ray_sentinel.actors.storage import DeploymentStorage
from ray_sentinel.config import Config
from ray_sentinel.engine.incidents.lifecycle import OPEN
from ray_sentinel.model.diagnosis import Diagnosis
from ray_sentinel.model.incident import Incident
from ray_sentinel.private_files import make_private
from ray_sentinel.report import series
from ray_sentinel.report.contract import incident_json
from ray_sentinel.report.html import incident_html
from ray_sentinel.report.incident_markdown import markdown

BACKTRACES = ("pyspy_", "cudagdb_")
"""Beginnings of the names of the files with backtraces, which are what a capture after a fixed time
is for."""


class Bundles:
    """The incidents' folders below ``root``; None if nothing can be written. Problems are returned
    as lines for people.

    ``store`` and ``publish`` may hang with the disk and are called by one thread, see ``writer``;
    the others never wait, and any thread may call them.
    """

    def __init__(
        self, root: Path | None, incidents: Iterable[Incident] = (), deployment: str = ""
    ) -> None:
        """``incidents`` are those of the previous coordinator."""
        self.root = root
        self._deployment = deployment
        self._lock = threading.Lock()
        self._folders: dict[str, Path] = {}
        self._open: set[str] = set()
        for incident in incidents:
            self._note(incident)
            if incident.bundle:
                self._folders[incident.id] = Path(incident.bundle)

    def open(self) -> frozenset[Path]:
        """Folders of incidents that are not over: never removed to make room."""
        with self._lock:
            return frozenset(self._folders[key] for key in self._open & self._folders.keys())

    def store(self, incident: Incident, files: Mapping[str, bytes]) -> Written:
        """Put files into the folder."""
        folder, problems = self._folder(incident)
        if folder is None:
            return Written(None, problems, {})
        return bundle.put(folder, files)

    def publish(self, incident: Incident) -> Written:
        """Write the incident and its report in their current state, including the folder's name."""
        with self._lock:
            self._note(incident)
        folder, problems = self._folder(incident)
        if folder is None:
            return Written(None, problems, {})
        named = msgspec.structs.replace(incident, bundle=str(folder))
        said = series.read(bundle.read(folder, (series.FILE, series.PLOTS_FILE)))
        return bundle.put(folder, rendered(named, _names(folder), said))

    def known(self, incident: str) -> Path | None:
        """The folder of the incident with this id, as last seen."""
        with self._lock:
            return self._folders.get(incident)

    def forget(self, incidents: Iterable[str]) -> None:
        """Drop incidents that are over; if more arrives for one, its folder is found again."""
        with self._lock:
            for key in incidents:
                self._folders.pop(key, None)

    def _note(self, incident: Incident) -> None:
        (self._open.add if incident.state in OPEN else self._open.discard)(incident.id)

    def _folder(self, incident: Incident) -> tuple[Path | None, list[str]]:
        """The incident's folder, which is created with the first file in it."""
        if self.root is None:
            return None, ["nothing can be written here: the incident is kept in memory only"]
        known = self.known(incident.id)
        if known is not None and known.is_dir():
            return known, []
        by = self._deployment
        try:
            made = bundle.find(self.root, incident, by)
            made = made or bundle.create(self.root, incident, by)
        except OSError as error:
            return None, [
                f"the bundle could not be written below {self.root} ({error.strerror}): the "
                "incident is kept in memory; make room or set log_dir elsewhere"
            ]
        with self._lock:
            self._folders[incident.id] = made
        return made, []


def capture_root(storage: DeploymentStorage, config: Config, name: str) -> Path | None:
    """The folder of bundles ("incidents"), or where the files of ``capture.wait_seconds`` are found
    ("backtraces"): ``capture.output_dir``, or else ``<log_dir>/NAME``."""
    if config.capture.output_dir:
        return Path(config.capture.output_dir).expanduser()
    return storage.folder(name)


def link_backtraces(bundle_folder: Path, root: Path) -> list[str]:
    """Links in ``root`` to a bundle's files of py-spy and cuda-gdb; one line for each problem.

    They take no room, and those of bundles that are gone are removed. What is not a link stays.
    """
    problems = []
    try:
        make_private(root)
        for old in root.glob("*_*_*.txt"):
            if old.is_symlink() and old.name.startswith(BACKTRACES) and not old.exists():
                old.unlink()
        for file in sorted(bundle_folder.glob("*_*_*.txt")):
            link = root / file.name
            if not file.name.startswith(BACKTRACES):
                continue
            if link.is_symlink():
                link.unlink()
            link.symlink_to(os.path.relpath(file, root))
    except OSError as error:
        problems.append(
            f"{error.filename2 or error.filename or root}: {error.strerror}: the backtraces are in "
            f"{bundle_folder}"
        )
    return problems


def _names(folder: Path) -> list[str]:
    """The files of a bundle, relative to it."""
    found = (path for path in folder.rglob("*") if path.is_file())
    return [name for path in found if not (name := str(path.relative_to(folder))).startswith(".")]


def rendered(
    incident: Incident, files: Iterable[str] = (), diagnosis: Diagnosis | None = None
) -> dict[str, bytes]:
    """The files of a bundle that are made from the incident itself: file name → content.
    ``files`` are the names of the others in the bundle, and ``diagnosis`` is what the job's time
    series say."""
    return {
        "incident.json": incident_json(incident, diagnosis),
        "report.md": markdown(incident, tuple(sorted(files)), diagnosis).encode(),
        "report.html": incident_html(incident, diagnosis).encode(),
    }
