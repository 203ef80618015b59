"""The level that a log line states."""

from __future__ import annotations

from ray_sentinel import regex as re

_LEVEL = re.compile(
    r"(?:^|[\s\[\]:|(,\-])(?P<word>DEBUG|TRACE|INFO|NOTICE|WARNING|WARN|ERROR|CRITICAL|FATAL)(?=[\s\]:|),\-]|$)"
    r"|^(?P<glog>[IWEFD])\d{3,4} \d\d:"
    r"|^\[\d{4}-\d\d-\d\d [\d:,.]+ (?P<ray>[IWEDC]) "
    r"|^\[(?P<c10d>[WEIF])\d{3,4} \d\d:"
    r"|\d\d:\d\d:\d\d\.\d+: (?P<tf>[IWEF]) "
)
_LETTERS = {"I": "info", "W": "warning", "E": "error", "F": "error", "C": "error", "D": "debug"}
_WORDS = {
    "DEBUG": "debug",
    "TRACE": "debug",
    "INFO": "info",
    "NOTICE": "info",
    "WARN": "warning",
    "WARNING": "warning",
    "ERROR": "error",
    "CRITICAL": "error",
    "FATAL": "error",
}
_FRONT = 110
_FIELD = re.compile(
    r'(?:"(?:severity|level|levelname|log_level|lvl)": ?"|(?:^|\s)(?:severity|level|lvl)="?)'
    r"(?P<word>debug|trace|info|notice|warning|warn|error|critical|fatal)\b",
    re.IGNORECASE,
)
"""The field that states the level. It may stand anywhere in JSON, but stands near the front in
logfmt."""
_REACH = 4000


def level(text: str) -> str:
    """ "debug", "info", "warning" or "error" if the beginning of the line states it; otherwise
    empty.

    >>> level("[2024-05-01 10:00:00,123 E 12 34] (raylet) x.cc:1: y")
    'error'
    """
    field = _FIELD.search(text, 0, _REACH if text[:1] == "{" else _FRONT)
    if field is not None:
        return _WORDS[field["word"].upper()]
    match = _LEVEL.search(text, 0, _FRONT)
    if match is None:
        return ""
    for name in ("glog", "ray", "c10d", "tf"):
        if letter := match.group(name):
            return _LETTERS[letter]
    return _WORDS[match.group("word")]


def is_quiet(text: str) -> bool:
    """Whether the line states that it is only information."""
    return level(text) in ("info", "debug")
