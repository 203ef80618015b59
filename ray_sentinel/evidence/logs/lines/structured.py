"""Lines that are JSON objects: Docker's, and those of structured loggers."""

from __future__ import annotations

import json

from ray_sentinel import regex as re

_DOCKER = re.compile(
    r'\{"log": ?"(?P<log>(?:[^"\\]|\\.)*)", ?"stream": ?"(?P<stream>std(?:out|err))",'
    r'.{0,400}?"time": ?"(?P<time>[^"]+)"\}\s*$'
)
_FIELDS = (
    ("rank", re.compile(r'"(?:global_|world_)?rank": ?"?(\d{1,7})\b', re.IGNORECASE)),
    ("local", re.compile(r'"local_rank": ?"?(\d{1,4})\b', re.IGNORECASE)),
    ("host", re.compile(r'"(?:host|hostname|node|node_name)": ?"([\w.-]{1,253})"')),
)


def named_fields(text: str) -> dict[str, str]:
    """Who printed the object, as far as its own fields show: ``rank``, ``local``, ``host``."""
    found = ((key, field.search(text)) for key, field in _FIELDS)
    return {key: match[1] for key, match in found if match is not None}


def undocked(raw: str) -> str:
    """A line of Docker's json-file driver, in the kubelet's own format."""
    match = _DOCKER.match(raw)
    if match is None:
        return raw
    try:
        log = json.loads(f'"{match["log"]}"')
    except ValueError:
        return raw  # truncated or damaged: better unchanged than not at all
    return f"{match['time']} {match['stream']} F {log}".rstrip("\n").replace("\n", " ")
