"""Times at the beginning of log lines, in the formats that training jobs mix.

Read are ISO 8601 and its relatives (with or without zone), Google logs (``E0325 20:57:27.620000``,
also PyTorch's three-digit ``E626``), vLLM's ``INFO 05-01 10:00:00``, syslog, ``dmesg -T``,
``date``, rich's ``[05/01/24 10:00:00]``, ``05/01/2024 10:00:00`` and ``05/01 10:00:00`` at a line's
begin, and Unix seconds. A time without a zone is taken as UTC; one without a year gets ``year``.

Ray's driver prints its autoscaler's messages with its own age: ``(autoscaler +1h2m3s)``
(``time_string`` in ray/_private/worker.py).
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta, timezone

from ray_sentinel import regex as re

_MONTHS = {
    name: number
    for number, name in enumerate(
        ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"), 1
    )
}
_MONTH = r"(?P<{0}>Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec)"
_CLOCK = r"(?P<h>[01]?\d|2[0-3]):(?P<mi>[0-5]\d):(?P<s>[0-5]\d|60)(?:[.,](?P<f>\d{1,9}))?"

_ISO_TEXT = (
    r"(?P<y>(?:19|20)\d\d)[-/.](?P<mo>0[1-9]|1[0-2])[-/.](?P<d>0[1-9]|[12]\d|3[01])[T _-]{1,2}"
    + _CLOCK
    + r"(?P<z> ?Z\b| ?UTC\b| ?[+-]\d\d:?\d\d\b)?"
)
_ISO, _ISO_HERE = re.compile(_ISO_TEXT), re.compile_anchored(_ISO_TEXT, re.ASCII)
_TO_COLON = len("2024-05-01 10")
"""Characters of such a time before its first colon, as nearly everybody writes it."""
_GLOG = re.compile(r"\b[IWEFVDC](?P<md>\d{3,4}) " + _CLOCK)
_VLLM = re.compile(
    r"(?:INFO|WARNING|ERROR|DEBUG|CRITICAL|\b[IWEDC]) +(?P<mo>0[1-9]|1[0-2])-(?P<d>[0-3]\d) "
    + _CLOCK
)
_DATE = re.compile(
    r"\b(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun) "
    + _MONTH.format("mon")
    + r" +(?P<d>\d{1,2}) "
    + _CLOCK
    + r"(?: (?P<ampm>[AP]M))?(?: (?P<z>UTC|GMT|[A-Z]{3,4}))? (?P<y>\d{4})"
)
_SYSLOG = re.compile(_MONTH.format("mon") + r" +(?P<d>\d{1,2}) " + _CLOCK)
_RICH = re.compile(r"\[(?P<mo>0[1-9]|1[0-2])/(?P<d>[0-3]\d)/(?P<y>\d\d) " + _CLOCK)
_SLASHED = re.compile(
    r"^\[?(?P<mo>0[1-9]|1[0-2])/(?P<d>0[1-9]|[12]\d|3[01])(?:/(?P<y>20\d\d))? " + _CLOCK
)
_UNIX = re.compile(r"^\[?(?P<t>1[4-9]\d{8}|2\d{9})(?:\.(?P<f>\d{1,9}))?\]?(?=\s)")
_JSON = re.compile(r'"timestamp": ?"?((?:1[4-9]|2\d)\d{8}(?:\.\d+)?)(?!\d)')
_JSON_TEXT = re.compile(r'"(?:@?timestamp|time|ts|asctime|date)": ?"([^"{]{10,40})"')
_YEAR = re.compile(
    r"\b((?:19|20)\d\d)[-/](?:0[1-9]|1[0-2])[-/](?:0[1-9]|[12]\d|3[01])[T _-]+\d\d:\d\d"
    r"|\b(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun) [A-Z][a-z]{2} +\d{1,2} \d\d:\d\d:\d\d "
    r"(?:[A-Z]{3,4} )?((?:19|20)\d\d)\b"
)
_READERS = (_ISO, _GLOG, _DATE, _VLLM, _RICH, _SLASHED, _SYSLOG)

_AGE = re.compile(r"^\(autoscaler \+(?:(?P<h>\d{1,5})h)?(?:(?P<m>\d{1,2})m)?(?:(?P<s>\d{1,2})s)?\)")
_CONNECTED = re.compile(
    r"worker\.py:\d+ -- (?:Started a local Ray|Connect(?:ing|ed) to|Calling ray\.init|Using)"
)

_LOOK = 160
"""Characters from the line's start within which a time is looked for."""


def parse_time(line: str, year: int = 1970) -> float | None:
    """Unix seconds of the first time at the beginning of ``line``, or None.

    >>> parse_time("2024-05-01 10:00:00,500 INFO x")
    1714557600.5
    """
    if line.startswith("{"):
        if match := _JSON.search(line):
            return float(match.group(1))
        if match := _JSON_TEXT.search(line):
            return parse_time(match.group(1), year)
    front = line[:_LOOK]
    if front.count(":") < 2:
        match = _UNIX.match(front)
        return float(match.group("t") + "." + (match.group("f") or "0")) if match else None
    for reader in _READERS:
        match = _iso(front) if reader is _ISO else reader.search(front)
        if match is not None:
            when = _build(match.groupdict(), year)
            if when is not None:
                return when
    return None


def _iso(front: str) -> re.Match[str] | None:
    """As ``_ISO.search``, which takes ten times as long: the first colon behind a digit is that of
    the time, unless something else has one before it."""
    colon = front.find(":")
    while colon > 0 and not front[colon - 1].isdigit():
        colon = front.find(":", colon + 1)
    found = _ISO_HERE.match(front, colon - _TO_COLON) if colon >= _TO_COLON else None
    return found or _ISO.search(front)


def driver_age(line: str) -> float | None:
    """The age in seconds of the Ray driver whose autoscaler wrote ``line``; None for other lines.

    >>> driver_age("(autoscaler +1h2m3s) Resized to 64 CPUs.")
    3723.0
    """
    match = _AGE.match(line) if line.startswith("(autoscaler +") else None
    if match is None:
        return None
    return 3600.0 * int(match["h"] or 0) + 60.0 * int(match["m"] or 0) + int(match["s"] or 0)


def driver_began(lines: Iterable[str], year: int) -> float | None:
    """Unix seconds when a Ray driver began, from its first message about its cluster, or else from
    the first date in ``lines``; None without either."""
    first = None
    for line in lines:
        when = parse_time(line, year)
        if when is not None and _CONNECTED.search(line):
            return when
        first = when if first is None else first
    return first


def find_year(text: str) -> int | None:
    """The year of the last full date in ``text``, which dates without a year are taken to be in."""
    found = None
    for match in _YEAR.finditer(text):
        found = int(match.group(1) or match.group(2))
    return found


def _build(parts: dict[str, str | None], year: int) -> float | None:
    month, day = _month_day(parts)
    if parts.get("y"):
        year = int(parts["y"] or 0)
        year += 2000 if year < 100 else 0
    hour = int(parts["h"] or 0)
    if parts.get("ampm"):
        hour = hour % 12 + (12 if parts["ampm"] == "PM" else 0)
    try:
        moment = datetime(
            year,
            month,
            day,
            hour,
            int(parts["mi"] or 0),
            min(int(parts["s"] or 0), 59),
            tzinfo=timezone.utc,
        )
    except ValueError:
        return None
    fraction = parts.get("f")
    seconds = moment.timestamp() + (float("0." + fraction) if fraction else 0.0)
    return seconds - _offset(parts.get("z"))


def _month_day(parts: dict[str, str | None]) -> tuple[int, int]:
    if together := parts.get("md"):
        return int(together[:-2]), int(together[-2:])
    if name := parts.get("mon"):
        return _MONTHS[name.lower()], int(parts["d"] or 0)
    return int(parts["mo"] or 0), int(parts["d"] or 0)


def _offset(zone: str | None) -> float:
    """Seconds east of UTC; a zone known by name only is taken as UTC."""
    zone = (zone or "").strip()
    if not zone or zone[0] not in "+-":
        return 0.0
    digits = zone[1:].replace(":", "")
    span = timedelta(hours=int(digits[:2]), minutes=int(digits[2:4]))
    return span.total_seconds() * (-1 if zone[0] == "-" else 1)
