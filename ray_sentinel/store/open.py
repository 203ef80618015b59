"""Recognises what a source is, and opens it."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec

from ray_sentinel.diagnose.series import TimeSeries
from ray_sentinel.errors import InputError, SentinelError, UnreachableError
from ray_sentinel.http.page_client import (
    NoTokenError,
    PageClient,
    UnprovenError,
    is_page,
    page_client,
    split_link,
)
from ray_sentinel.store.event_files.find import find_event_files
from ray_sentinel.store.event_files.source import load_events
from ray_sentinel.store.history.source import HistorySource, newest
from ray_sentinel.store.prometheus.api import PrometheusSource
from ray_sentinel.store.prometheus.readonly import read_only_prometheus
from ray_sentinel.store.prometheus.tsdb import find_database, inspect, is_database, listen_address

MOST_HISTORY_BYTES = 1 << 30
"""Most bytes of a history that is fetched: a coordinator keeps ``history.MAX_BYTES`` unless told
otherwise. A larger one is refused."""
LATELY_SECONDS = 120.0
"""Seconds since its last write within which a history file on this machine counts as the
coordinator's."""
HISTORY_SUFFIXES = (".db", ".sqlite", ".sqlite3")


class Opened(msgspec.Struct, frozen=True):
    """An open source, and the folder of its job if known."""

    source: TimeSeries
    folder: Path | None


@contextmanager
def open_source(
    where: str, *, binary: str = "", port: int = 0, deadline: float = 30.0, run: str = ""
) -> Iterator[Opened]:
    """Open a Prometheus URL, the coordinator's URL, a job's folder, a history or an event file.

    ``run`` is the one to use if the event files hold several training runs. What was started for it
    is ended on leaving. Raises InputError if it is none of these, UnreachableError or
    MissingPartError if it cannot be reached.
    """
    if where.startswith(("http://", "https://")):
        with _open_url(where, deadline) as opened:
            yield opened
        return
    path = Path(where).expanduser()
    if path.is_file() and path.suffix in HISTORY_SUFFIXES:
        with contextlib.closing(HistorySource.open(path)) as history:
            yield Opened(history, _folder_of(path))
        return
    if path.is_file() and "tfevents" in path.name:
        yield Opened(_events_alone(path, [path], run), path.parent)
        return
    with _open_folder(path, binary, port, deadline, run) as opened:
        yield opened


def _events_alone(path: Path, files: list[Path], run: str, why: str = "") -> TimeSeries:
    """The series of event files of a job without any others. Raises InputError if none are."""
    events = load_events(files, run=run)
    if events.span() is None:
        raise InputError("; ".join([why or f"{path} holds no scalars", *events.notes[:3]]))
    events.notes.append("the job has no series but those of its event files")
    return events


@contextmanager
def _open_url(where: str, deadline: float) -> Iterator[Opened]:
    root, token = split_link(where)
    page = _page_at(where, deadline)
    if page is None:
        source = PrometheusSource(root if token else where, deadline=deadline)
        source.families()
        yield Opened(source, None)
        return
    client, status = page
    folder = str(status.get("log_dir") or "")
    here = Path(folder) if folder else None
    if url := status.get("prometheus"):
        yield Opened(PrometheusSource(str(url), deadline=deadline), here)
        return
    with _coordinators(client, status, deadline) as history:
        yield Opened(history, here if here is not None and here.is_dir() else None)


@contextmanager
def _coordinators(
    page: PageClient, status: Mapping[str, Any], deadline: float
) -> Iterator[HistorySource]:
    """The coordinator's embedded history: its file, where that is here, else as it sends it."""
    file = Path(str(status.get("history") or ""))
    if file.name and _written_lately(file, float(status.get("time") or 0.0)):
        with contextlib.closing(HistorySource.open(file)) as history:
            history.title = f"the embedded history of {page.root} ({file})"
            yield history
        return
    with tempfile.TemporaryDirectory(prefix="ray_sentinel-") as place:
        file = Path(place) / "history.db"
        file.write_bytes(
            page.get("/api/v1/history", seconds=deadline, most_bytes=MOST_HISTORY_BYTES)
        )
        with contextlib.closing(HistorySource.open(file)) as history:
            history.title = f"the embedded history of {page.root}"
            yield history


def _written_lately(file: Path, now: float) -> bool:
    """Whether the file was written lately; if the coordinator is on another machine, a file of that
    name here is not the coordinator's."""
    return now - newest(file) < LATELY_SECONDS


def _page_at(where: str, deadline: float) -> tuple[PageClient, dict[str, Any]] | None:
    """The coordinator's page at a URL and what it says of itself; None if there is none.

    Raises UnprovenError if the server is not the page whose token or file we have, and
    NoTokenError for a page of which we have neither.
    """
    try:
        client = page_client(where)
    except NoTokenError:
        if is_page(where, min(deadline, 5.0)):
            raise
        return None
    try:
        status = client.get_json("/api/v1/status", seconds=min(deadline, 5.0))
    except UnprovenError:
        # A token that is only in the environment need not be meant for this URL.
        if split_link(where)[1] or client.is_bound or is_page(where, min(deadline, 5.0)):
            raise
        return None
    except UnreachableError:
        return None
    return (client, status) if isinstance(status, dict) and "state" in status else None


@contextmanager
def _open_folder(path: Path, binary: str, port: int, deadline: float, run: str) -> Iterator[Opened]:
    histories = _histories(path)
    try:
        database = find_database(path)
    except InputError as error:
        if not histories:
            yield Opened(_events_alone(path, find_event_files(path), run, str(error)), path)
            return
        with contextlib.closing(_newest_readable(histories)) as history:
            yield Opened(history, _folder_of(histories[-1]))
        return
    folder = job_folder(path, database)
    live = _reachable(database, deadline)
    if live is not None:
        yield Opened(live, folder)
        return
    with read_only_prometheus(database, binary=binary, port=port) as (url, found, notes):
        span = None if found.wal else found.span
        source = PrometheusSource(
            url, title=str(database), deadline=max(deadline, 120.0), span=span, notes=notes
        )
        if found.wal:
            source.find_span(found.span)
        yield Opened(source, folder)


def job_folder(given: Path, database: Path) -> Path:
    """The job's folder around its data folder, which contains its logs."""
    for folder in (database, *database.parents[:2]):
        if folder.name in {"prometheus", "data"}:
            continue
        if folder != database or not is_database(folder):
            return folder
    return given


def _histories(path: Path) -> list[Path]:
    if not path.is_dir():
        return []
    found = [
        file
        for folder in (path, path / "history")
        if folder.is_dir()
        for file in folder.iterdir()
        if file.suffix in HISTORY_SUFFIXES
    ]
    return sorted(found, key=newest)


def _newest_readable(files: list[Path]) -> HistorySource:
    """The newest of some histories; a damaged one is reported, and the one before it is taken.

    Raises InputError if none can be read.
    """
    notes: list[str] = []
    for place in reversed(range(len(files))):
        try:
            history = HistorySource.open(files[place])
        except InputError as error:
            notes.append(str(error))
            continue
        if place:
            notes.append(f"{place} earlier histories lie beside it; each can be given by its name")
        history.notes += notes
        return history
    raise InputError("; ".join(notes))


def _folder_of(file: Path) -> Path:
    return file.parent.parent if file.parent.name == "history" else file.parent


def _reachable(database: Path, deadline: float) -> PrometheusSource | None:
    """The running Prometheus that holds the folder, if it is on this machine and answers."""
    found = inspect(database)
    address = listen_address(found.holder) if found.holder else ""
    if not address:
        return None
    source = PrometheusSource(f"http://{address}", deadline=min(deadline, 10.0))
    try:
        source.families()
    except SentinelError:
        return None
    source.title = f"http://{address} (the running Prometheus of {database})"
    return source
