"""Shows lines of several files, merged by time, and goes on as they grow."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import msgspec

from ray_sentinel.clock import Clock
from ray_sentinel.errors import InputError
from ray_sentinel.evidence.logs.catalogue import Catalogue
from ray_sentinel.evidence.logs.times import parse_time
from ray_sentinel.evidence.logs.view import ViewLine, view_line
from ray_sentinel.logs.reading import READ_ERRORS, compression, line_start, open_log, read_chunks
from ray_sentinel.logs.salvage import Salvage, told
from ray_sentinel.logs.select import Described, Wanted, line_fits

_LONGEST = 16 << 10
_BYTES_A_LINE = 400
_YEAR = 1970


class Shown(msgspec.Struct, frozen=True):
    """A line, the file it comes from and its time, where it has one."""

    label: str
    line: ViewLine
    time: float | None


def last_lines(
    files: Sequence[Described], wanted: Wanted, catalogue: Catalogue, count: int, *, errors: bool
) -> list[Shown]:
    """The last ``count`` lines of each file that fit, merged by time where they have one."""
    shown: list[tuple[float, int, int, Shown]] = []
    for number, item in enumerate(files):
        raw, problem = _tail(item, count, whole=errors)
        lines = _judged(item, wanted, catalogue, raw, errors=errors)
        lines = lines[-count:] if count else []
        if problem:
            lines.append(_damaged(item, problem))
        when = 0.0
        for order, line in enumerate(lines):
            when = line.time if line.time is not None else when
            shown.append((when, number, order, line))
    shown.sort(key=lambda entry: entry[:3])
    return [entry[3] for entry in shown]


def follow(
    files: Sequence[Described],
    wanted: Wanted,
    catalogue: Catalogue,
    clock: Clock,
    *,
    errors: bool,
    more: Callable[[], bool] = lambda: True,
    interval: float = 0.5,
) -> Iterator[Shown]:
    """New lines as they are written, until ``more`` says no. A file that shrinks starts anew."""
    places = {item.found.path: item.found.path.stat().st_size for item in files}
    while more():
        for item in files:
            yield from _grown(item, wanted, catalogue, places, errors=errors)
        clock.sleep(interval)


def _grown(
    item: Described,
    wanted: Wanted,
    catalogue: Catalogue,
    places: dict[Path, int],
    *,
    errors: bool,
) -> Iterator[Shown]:
    path = item.found.path
    try:
        size = path.stat().st_size
        if size < places[path]:
            places[path] = 0
        if size == places[path]:
            return
        with path.open("rb") as file:
            file.seek(places[path])
            data = file.read(size - places[path])
    except OSError:
        return  # rotated away; it may come back
    cut = data.rfind(b"\n") + 1
    places[path] += cut
    yield from _judged(item, wanted, catalogue, data[:cut].split(b"\n"), errors=errors)


def _tail(item: Described, count: int, *, whole: bool) -> tuple[list[bytes], str]:
    """The file's last lines, all of them when errors are looked for; and what cannot be read."""
    path = item.found.path
    lines: list[bytes] = []
    try:
        packed = compression(path)
        with open_log(path, packed) as opened:
            start = 0
            if not packed and not whole:
                start = line_start(opened, max(0, item.found.file.size - count * _BYTES_A_LINE))
            file = Salvage(opened)
            file.seek(start)
            for _, data in read_chunks(file, start):
                lines = (lines + data.replace(b"\r", b"\n").split(b"\n"))[-200_000:]
    except FileNotFoundError:
        return [], ""  # rotated away since it was found
    except InputError as error:
        return [], str(error)
    except READ_ERRORS as error:
        return [], told(str(error), "", partly=False)
    return lines, told(file.problem, packed, partly=bool(lines)) if file.problem else ""


def _damaged(item: Described, problem: str) -> Shown:
    """Trouble of the file itself, beside its lines."""
    line = ViewLine(text=f"({problem})", origin=item.origin, mark="error")
    return Shown(item.found.file.label, line, None)


def _judged(
    item: Described,
    wanted: Wanted,
    catalogue: Catalogue,
    lines: Sequence[bytes],
    *,
    errors: bool,
) -> list[Shown]:
    kept = []
    for raw in lines:
        if not raw.strip():
            continue
        text = raw[:_LONGEST].decode("utf-8", "replace")
        line = view_line(text, catalogue, item.found.file.kind)
        if errors and line.mark != "error":
            continue
        if wanted.anything or line_fits(line.origin, item.origin, wanted):
            kept.append(Shown(item.found.file.label, line, parse_time(text, _YEAR)))
    return kept
