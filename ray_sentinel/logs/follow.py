"""Merges the lines of several log files by time, marks errors, and follows the growing files."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import msgspec

from ray_sentinel.clock import Clock
from ray_sentinel.errors import InputError
from ray_sentinel.evidence.logs.errors.catalogue import Catalogue
from ray_sentinel.evidence.logs.lines.levels import is_quiet, level
from ray_sentinel.evidence.logs.lines.lines import Origin, ScannedLine, parse_line
from ray_sentinel.evidence.logs.lines.times import parse_time
from ray_sentinel.evidence.logs.lines.tracebacks import HEADER, parse_exception
from ray_sentinel.logs.find import FoundLog
from ray_sentinel.logs.reading import compression, line_start, open_log, read_chunks
from ray_sentinel.logs.salvage import Salvage, damage_text, reason
from ray_sentinel.logs.select import LineFilter, line_fits
from ray_sentinel.logs.unpacking import READ_ERRORS
from ray_sentinel.masking import mask

_LONGEST = 16 << 10
"""Most bytes of a line that are shown; the rest of a longer line is not."""
_MOST_LINES = 200_000
_MOST_BYTES = 256 << 20
"""Most bytes of a file that are held at once while its last lines are looked for; of more, the
earliest lines are dropped."""
_MOST_NEW = 8 << 20
"""Most bytes of a file that are taken in one look; what is written faster is passed over."""
_BYTES_A_LINE = 400
_LEAST_BYTES = 64 << 10
"""Least number of bytes at a file's end in which its last lines are looked for."""
_LOOK_SECONDS = 0.5
"""Seconds between two looks at files that grow."""
_YEAR = 1970


class ViewLine(msgspec.Struct, frozen=True, kw_only=True):
    """One line, masked and without escapes. ``mark`` is "error", "warning" or empty."""

    text: str
    origin: Origin
    mark: str = ""
    kind: str = ""
    """The failure class of the signature that the line matches; empty if it matches none."""
    repeated: int = 1


def view_line(raw: str, catalogue: Catalogue, file_kind: str = "") -> ViewLine:
    """``raw`` without prefixes and escapes, with secrets masked, and its mark."""
    line = parse_line(raw)
    mark, kind = _mark_of(line, catalogue, file_kind)
    return ViewLine(
        text=mask(line.text), origin=line.origin, mark=mark, kind=kind, repeated=line.repeated
    )


def _mark_of(line: ScannedLine, catalogue: Catalogue, file_kind: str) -> tuple[str, str]:
    text = line.text
    found = catalogue.search(text, file_kind)
    if found is not None:
        signature = found.signature
        if signature.role in ("harmless", "note"):
            return "", ""
        if is_quiet(text) and signature.weight < 84:
            return "", ""
        return ("warning" if signature.severity == "warning" else "error"), signature.kind
    if catalogue.harmless(text, file_kind) is not None:
        return "", ""
    if HEADER in text or parse_exception(text) is not None or level(text) == "error":
        return "error", ""
    return ("warning", "") if level(text) == "warning" else ("", "")


class Shown(msgspec.Struct, frozen=True):
    """A line, the file it comes from, and its time if it has one."""

    label: str
    line: ViewLine
    time: float | None


def last_lines(
    files: Sequence[FoundLog],
    wanted: LineFilter,
    catalogue: Catalogue,
    count: int,
    *,
    errors: bool,
) -> list[Shown]:
    """The last ``count`` matching lines of each file, merged by time if they have one."""
    shown: list[tuple[float, Shown]] = []
    for item in files:
        raw, problem = _tail(item, count, whole=errors)
        kept = _judged(item, wanted, catalogue, raw, errors=errors)
        lines = _with_note(item, kept[-count:] if count else [])
        if problem:
            lines.append(_noted(item, problem, "error"))
        when = 0.0
        for line in lines:
            when = line.time if line.time is not None else when
            shown.append((when, line))
    return [line for _, line in sorted(shown, key=lambda entry: entry[0])]


def follow(
    files: Sequence[FoundLog],
    wanted: LineFilter,
    catalogue: Catalogue,
    clock: Clock,
    *,
    errors: bool,
    more: Callable[[], bool] = lambda: True,
) -> Iterator[Shown]:
    """New lines as they are written, until ``more`` returns False. A file that shrinks is read from
    its start."""
    places = {item.path: item.path.stat().st_size for item in files}
    while more():
        for item in files:
            new = _grown(item.path, places)
            yield from _with_note(item, _judged(item, wanted, catalogue, new, errors=errors))
        clock.sleep(_LOOK_SECONDS)


def _grown(path: Path, places: dict[Path, int]) -> list[bytes]:
    """The lines behind the place of a file, which is moved behind them."""
    try:
        size = path.stat().st_size
        if size < places[path]:
            places[path] = 0
        if size == places[path]:
            return []
        with path.open("rb") as file:
            places[path] = max(places[path], size - _MOST_NEW)
            file.seek(places[path])
            data = file.read(size - places[path])
    except OSError:
        return []  # rotated away; it may come back
    cut = data.rfind(b"\n") + 1
    if not cut and len(data) > _LONGEST:
        cut = len(data)  # a line without an end is shown as it grows
    places[path] += cut
    return data[:cut].split(b"\n")


def _tail(item: FoundLog, count: int, *, whole: bool) -> tuple[list[bytes], str]:
    """The file's last lines, all of them when errors are looked for; and what cannot be read."""
    path = item.path
    lines: list[bytes] = []
    try:
        packed = compression(path)
        with open_log(path, packed) as opened:
            start = 0
            if not packed and not whole:
                reach = max(_LEAST_BYTES, count * _BYTES_A_LINE) if count else 0
                start = line_start(opened, max(0, item.file.size - reach))
            file = Salvage(opened)
            file.seek(start)
            for _, data in read_chunks(file, start):
                lines += data.replace(b"\r", b"\n").split(b"\n")
                _drop_first(lines)
    except FileNotFoundError:
        return [], ""  # rotated away since it was found
    except InputError as error:
        return [], str(error)
    except READ_ERRORS as error:
        return [], damage_text(reason(error), "", partly=False)
    return lines, damage_text(file.problem, packed, partly=bool(lines)) if file.problem else ""


def _drop_first(lines: list[bytes]) -> None:
    """Keep the last lines, and of those no more than fit."""
    del lines[:-_MOST_LINES]
    held = sum(map(len, lines))
    dropped = 0
    while held > _MOST_BYTES:
        held -= len(lines[dropped])
        dropped += 1
    del lines[:dropped]


def _noted(item: FoundLog, text: str, mark: str) -> Shown:
    """A line about the file itself."""
    line = ViewLine(text=f"({text})", origin=item.file.origin, mark=mark)
    return Shown(item.file.label, line, None)


def _with_note(item: FoundLog, kept: Sequence[tuple[Shown, bool]]) -> list[Shown]:
    """The lines, and how many of them are shown in part."""
    shown = [line for line, _ in kept]
    if cut := sum(is_cut for _, is_cut in kept):
        which = "1 line is" if cut == 1 else f"{cut} lines are"
        text = f"{which} longer than {_LONGEST} bytes: what stands behind these is not shown"
        shown.append(_noted(item, text, "warning"))
    return shown


def _judged(
    item: FoundLog,
    wanted: LineFilter,
    catalogue: Catalogue,
    lines: Sequence[bytes],
    *,
    errors: bool,
) -> list[tuple[Shown, bool]]:
    """The lines that fit, and whether each is shown in part only."""
    kept = []
    for raw in lines:
        if not raw.strip():
            continue
        text = raw[:_LONGEST].decode("utf-8", "replace")
        line = view_line(text, catalogue, item.file.kind)
        if errors and line.mark != "error":
            continue
        if line_fits(line.origin, item.file.origin, wanted):
            shown = Shown(item.file.label, line, parse_time(text, _YEAR))
            kept.append((shown, len(raw) > _LONGEST))
    return kept
