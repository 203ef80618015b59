"""Which folder belongs to which incident, and what goes into it."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping
from pathlib import Path

import msgspec

from ray_sentinel.actors import bundle
from ray_sentinel.actors.storage import Storage
from ray_sentinel.config import Config
from ray_sentinel.engine.table import OPEN
from ray_sentinel.model.incident import Incident
from ray_sentinel.report import series
from ray_sentinel.report.bundle import rendered


class Bundles:
    """The incidents' folders below ``root``; None where nothing can be written. Any thread may
    call. Problems come back as lines for people."""

    def __init__(self, root: Path | None, incidents: Iterable[Incident] = ()) -> None:
        """``incidents`` are those of the coordinator before this one."""
        self.root = root
        self._lock = threading.Lock()
        self._folders: dict[str, Path] = {}
        self._open: set[str] = set()
        for incident in incidents:
            self._note(incident)
            if incident.bundle and Path(incident.bundle).is_dir():
                self._folders[incident.id] = Path(incident.bundle)

    def open(self) -> frozenset[Path]:
        """Folders of incidents that are not over: never removed to make room."""
        with self._lock:
            return frozenset(self._folders[key] for key in self._open & self._folders.keys())

    def store(
        self, incident: Incident, files: Mapping[str, bytes], *, look: bool = False
    ) -> tuple[Path | None, list[str]]:
        """Put files into the folder; a later ``look`` at the same hang beside the earlier ones."""
        folder, problems = self._folder(incident)
        if folder is None:
            return None, problems
        begun = bundle.begin_look(folder) if look else ""
        return folder, problems + bundle.add(folder, {begun + n: d for n, d in files.items()})

    def publish(self, incident: Incident) -> tuple[Incident, list[str]]:
        """Write the incident and its report as they are now; the incident with its folder named."""
        with self._lock:
            self._note(incident)
        folder, problems = self._folder(incident)
        if folder is None:
            return incident, problems
        named = msgspec.structs.replace(incident, bundle=str(folder))
        said = series.read(bundle.read(folder, (series.FILE,)))
        return named, problems + bundle.add(folder, rendered(named, _names(folder), said))

    def forget(self, incidents: Iterable[str]) -> None:
        """These are over; should more come of one, its folder is found again."""
        with self._lock:
            for key in incidents:
                self._folders.pop(key, None)

    def _note(self, incident: Incident) -> None:
        (self._open.add if incident.state in OPEN else self._open.discard)(incident.id)

    def _folder(self, incident: Incident) -> tuple[Path | None, list[str]]:
        """The incident's folder, made with the first thing that goes into it."""
        if self.root is None:
            return None, ["nothing can be written here: the incident is kept in memory only"]
        with self._lock:
            known = self._folders.get(incident.id)
            if known is not None and known.is_dir():
                return known, []
            try:
                made = bundle.find(self.root, incident) or bundle.create(self.root, incident)
            except OSError as error:
                return None, [
                    f"the bundle could not be written below {self.root} ({error.strerror}): the "
                    "incident is kept in memory; make room or set log_dir elsewhere"
                ]
            self._folders[incident.id] = made
            return made, []


def bundle_root(storage: Storage, config: Config) -> Path | None:
    """Where bundles go: ``capture.output_dir``, else ``<log_dir>/incidents``."""
    if config.capture.output_dir:
        return Path(config.capture.output_dir).expanduser()
    return storage.folder("incidents")


def _names(folder: Path) -> list[str]:
    """The files of a bundle, relative to it."""
    found = (path for path in folder.rglob("*") if path.is_file())
    return [name for path in found if not (name := str(path.relative_to(folder))).startswith(".")]
