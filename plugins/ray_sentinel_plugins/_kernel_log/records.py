"""Kernel log records, from /dev/kmsg and from the text that dmesg, syslog and journalctl print.

The format of /dev/kmsg is the kernel's Documentation/ABI/testing/dev-kmsg:
``<level + 8 * facility>,<sequence>,<microseconds>,<flags>[,...];<message>``, then lines of
``KEY=value`` that begin with a blank. Bytes that are not printable stand as ``\\xNN``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import datetime, timezone

import msgspec

from ray_sentinel import regex as re

MAX_RECORDS = 200_000
"""Most records of one reading."""
MAX_TEXT = 4000
"""Most characters of one record, continuation lines included; the rest is cut off."""

_KMSG = re.compile(r"(\d{1,4}),(\d{1,20}),(\d{1,20}),[^;]*;(.*)", re.DOTALL)
_PRIORITY = re.compile(r"<(\d{1,3})>")
_FACILITY = re.compile(r"[a-z0-9]+ *:(emerg|alert|crit|err|warn|notice|info|debug) *: ")
_LEVELS = ("emerg", "alert", "crit", "err", "warn", "notice", "info", "debug")
# [  12.345678] with what dmesg may add: <delta>, [T123] for the thread that printed.
_UPTIME = re.compile(r"\[ *(\d{1,10}\.\d{1,9})(?: *<[^>]{0,30}>)?\](?:\[ *[TC]\d+\])? ?")
_CTIME = re.compile(r"\[(\w{3} \w{3} +\d{1,2} \d\d:\d\d:\d\d \d{4})\] ?")
_ISO = re.compile(
    r"\[?(\d{4}-\d\d-\d\d)[T ](\d\d:\d\d:\d\d)(?:[.,](\d{1,9}))?(Z|[+-]\d\d:?\d\d)?\]?[: ] *"
)
_SYSLOG = re.compile(r"(\w{3}) +(\d{1,2}) (\d\d):(\d\d):(\d\d) ")
_RELATIVE_DAY = re.compile(r"\[(\w{3}) ?(\d{1,2}) (\d\d):(\d\d)\] ")
_DELTA = re.compile(r"\[ *\+(\d{1,10}\.\d{1,9})\] ")
_KERNEL = re.compile(r"(?:\S+ )?kernel: ")
_PROGRAM = re.compile(r"\S+ [\w./@\-]+\[\d+\]: ")
_MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")


class KernelRecord(msgspec.Struct, frozen=True, kw_only=True):
    """One message. ``monotonic`` is seconds since boot, ``wall`` Unix seconds; None if the record
    does not say."""

    text: str
    level: int | None = None
    sequence: int | None = None
    monotonic: float | None = None
    wall: float | None = None


def parse_kmsg(data: str) -> KernelRecord | None:
    """One record as /dev/kmsg gives it, or None if it is not one."""
    found = _KMSG.match(data)
    if found is None:
        return None
    priority, sequence, micros, rest = found.groups()
    message = rest.split("\n", 1)[0]
    return KernelRecord(
        text=_unescape(message)[:MAX_TEXT],
        level=int(priority) & 7,
        sequence=int(sequence),
        monotonic=int(micros) / 1e6,
    )


def _unescape(text: str) -> str:
    if "\\x" not in text:
        return text
    return re.sub(r"\\x([0-9a-f]{2})", lambda found: chr(int(found.group(1), 16)), text)


def parse_log(text: str, now: float = 0.0) -> list[KernelRecord]:
    """A stored kernel log in any of the usual forms; lines of other programs are left out.

    Records get their line's number as sequence where they have none. ``now``: when the log was
    stored, to find the year that syslog leaves out. Times without a zone are taken as UTC.
    """
    records: list[KernelRecord] = []
    clock = _Clock(now)
    for number, line in enumerate(text.splitlines()):
        if len(records) >= MAX_RECORDS:
            break
        record = parse_kmsg(line)
        if record is None and records and line[:1] in (" ", "\t"):
            _continue(records, line)
            continue
        if record is None and line.strip():
            record = _parse_line(line, number, clock)
        if record is not None:
            records.append(record)
    return records


def _continue(records: list[KernelRecord], line: str) -> None:
    # A message of several lines; after a /dev/kmsg record these are its KEY=value lines.
    last = records[-1]
    if len(last.text) < MAX_TEXT and not re.match(r" [A-Z]+=", line):
        joined = f"{last.text}\n{line.strip()}"[:MAX_TEXT]
        records[-1] = msgspec.structs.replace(last, text=joined)


class _Clock:
    """What is known of the time while a log is read from its beginning."""

    def __init__(self, now: float) -> None:
        self.now = now
        self.wall: float | None = None

    def dated(
        self, month: str, day: str, hour: str, minute: str, second: str = "0"
    ) -> float | None:
        """A time without its year: the latest that is not after ``now``."""
        if month not in _MONTHS or not self.now:
            return None
        number = _MONTHS.index(month) + 1
        year = datetime.fromtimestamp(self.now, timezone.utc).year
        for candidate in (year, year - 1):
            fields = (candidate, number, int(day), int(hour), int(minute), int(second))
            moment = _utc(fields)
            # A day of grace: the log may be in a zone that is ahead.
            if moment is not None and moment <= self.now + 86400:
                return moment
        return None


def _utc(fields: tuple[int, int, int, int, int, int]) -> float | None:
    try:
        return datetime(*fields, tzinfo=timezone.utc).timestamp()
    except (ValueError, OverflowError):
        return None


def _parse_line(line: str, number: int, clock: _Clock) -> KernelRecord | None:
    """A line of text with any of the prefixes, one after the other."""
    level, rest = _level(line)
    wall, rest, syslog = _stamp(rest, clock)
    monotonic, rest = _uptime(rest)
    if found := _KERNEL.match(rest):
        rest = rest[found.end() :]
    elif syslog or _PROGRAM.match(rest):
        return None
    if monotonic is None:
        monotonic, rest = _uptime(rest)
    return KernelRecord(
        text=rest.rstrip()[:MAX_TEXT], level=level, sequence=number, monotonic=monotonic, wall=wall
    )


def _level(line: str) -> tuple[int | None, str]:
    if found := _PRIORITY.match(line):
        return int(found.group(1)) & 7, line[found.end() :]
    if found := _FACILITY.match(line):
        return _LEVELS.index(found.group(1)), line[found.end() :]
    return None, line


def _stamp(line: str, clock: _Clock) -> tuple[float | None, str, bool]:
    """The wall time, the rest of the line, and whether it is syslog's, which names the program."""
    for pattern, read in _STAMPS:
        if found := pattern.match(line):
            clock.wall = read(found, clock)
            return clock.wall, line[found.end() :], pattern is _SYSLOG
    return None, line, False


def _uptime(line: str) -> tuple[float | None, str]:
    found = _UPTIME.match(line)
    return (float(found.group(1)), line[found.end() :]) if found else (None, line)


def _ctime(found: re.Match[str], clock: _Clock) -> float | None:
    try:
        words = " ".join(found.group(1).split())
        return datetime.strptime(f"{words} +0000", "%a %b %d %H:%M:%S %Y %z").timestamp()
    except ValueError:
        return None


def _iso(found: re.Match[str], clock: _Clock) -> float | None:
    day, time, fraction, zone = found.groups()
    zone = "+00:00" if zone in (None, "Z") else zone
    try:
        moment = datetime.strptime(f"{day} {time} {zone.replace(':', '')}", "%Y-%m-%d %H:%M:%S %z")
    except ValueError:
        return None
    return moment.timestamp() + float(f"0.{fraction or 0}")


def _syslog(found: re.Match[str], clock: _Clock) -> float | None:
    return clock.dated(*found.groups())


def _delta(found: re.Match[str], clock: _Clock) -> float | None:
    return None if clock.wall is None else clock.wall + float(found.group(1))


_STAMPS: tuple[tuple[re.Pattern[str], Callable[[re.Match[str], _Clock], float | None]], ...] = (
    (_CTIME, _ctime),
    (_ISO, _iso),
    (_SYSLOG, _syslog),
    (_RELATIVE_DAY, _syslog),
    (_DELTA, _delta),
)


def lines(records: list[KernelRecord]) -> Iterator[tuple[KernelRecord, str]]:
    """Each line of each record: drivers print several in one call."""
    for record in records:
        for line in record.text.split("\n"):
            if line:
                yield record, line
