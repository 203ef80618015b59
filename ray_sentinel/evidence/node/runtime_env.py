"""Runtime environments in Ray's own format: what one consists of, and which ones the log of its
agent shows as being built (``runtime_env_agent.py`` of Ray)."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime

import msgspec

from ray_sentinel.masking import mask
from ray_sentinel.text import one_line

MOST_PACKAGES = 3
"""Most packages of one environment that are named; of the others only the number is told."""
MOST_WHAT = 200
MOST_LINE = 300
"""Most characters of a line that is told; the rest of a longer one is cut off."""
MOST_BUILDS = 1000
"""Most unfinished environments of one log; further ones are left out."""
_TOLD = ("pip", "uv", "conda", "working_dir", "py_modules", "image_uri")
"""Fields of which it is told what is fetched or installed, in this order. Of others only the name
is told, because plugins may put anything into them."""
_NOT_BUILT = frozenset({"config", "env_vars", "py_executable", "worker_process_setup_hook"})
_INTERNAL = "_"
_CREATING, _TIMEOUT = "Creating runtime env: ", " with timeout "
_CREATED, _CONTEXT = "Successfully created runtime env: ", ", context: "
_FAILED = "Failed to create runtime env "
_GIVEN_UP = "runtime_env creation failed "


def described(serialized: str) -> str:
    """What must be downloaded or installed for an environment, from Ray's JSON of it; empty if that
    is unknown. Other contents (variables) are left out.

    >>> described('{"pip": {"packages": ["torch", "vllm==0.9"]}, "env_vars": {"HF_TOKEN": "x"}}')
    'pip: torch, vllm==0.9'
    """
    try:
        fields = msgspec.json.decode(serialized, type=dict[str, msgspec.Raw])
        parts = [
            f"{name}: {', '.join(_named(msgspec.json.decode(fields[name])))}"
            for name in _TOLD
            if name in fields
        ]
        parts += [
            name
            for name in fields
            if name not in _NOT_BUILT and name not in _TOLD and not name.startswith(_INTERNAL)
        ]
    except (msgspec.DecodeError, RecursionError):
        return ""
    return one_line(mask("; ".join(parts)), MOST_WHAT)


def _named(value: object) -> Iterator[str]:
    """The first packages or files."""
    if isinstance(value, dict):
        listed = value.get("packages", value.get("dependencies", value.get("image")))
        value = listed if listed is not None else "a specification"
    items = value if isinstance(value, list) else [value]
    for item in items[:MOST_PACKAGES]:
        text = item if isinstance(item, str) else "packages"
        # The last part of an address says most, and holds no password.
        yield text.partition("?")[0].rstrip("/").rpartition("/")[2][:MOST_WHAT]
    if len(items) > MOST_PACKAGES:
        yield f"{len(items) - MOST_PACKAGES} more"


def open_builds(log: str) -> dict[str, datetime | None]:
    """The environments that were begun and not ended, by the end of an agent's log, in Ray's text,
    each with the time at which it was begun, in its machine's time zone."""
    found: dict[str, datetime | None] = {}
    failed = ""
    for line in log.splitlines():
        head, dash, message = line.partition(" -- ")
        if not dash:
            continue
        if message.startswith(_CREATING):
            environment = message.removeprefix(_CREATING).rpartition(_TIMEOUT)[0]
            if environment and len(found) < MOST_BUILDS:
                found[environment] = _time(head)
        elif message.startswith(_CREATED):
            found.pop(message.removeprefix(_CREATED).partition(_CONTEXT)[0], None)
        elif message.startswith(_FAILED):
            failed = message.removeprefix(_FAILED).removesuffix(".")
        elif message.startswith(_GIVEN_UP):
            found.pop(failed, None)
    return found


def _time(head: str) -> datetime | None:
    """The time of a line that begins "2026-01-02 03:04:05,678"; None for any other."""
    try:
        return datetime.fromisoformat(head[:23].replace(",", "."))
    except ValueError:
        return None


def last_word(log: str) -> str:
    """The last message in a log, masked and without its time.

    >>> last_word("2026-01-02 03:04:05,678\\tINFO pip.py:7 -- Installing\\n")
    'Installing'
    """
    lines = [line for line in log.splitlines() if line.strip()]
    if not lines:
        return ""
    head, dash, message = lines[-1].partition(" -- ")
    said = message if dash and _time(head) is not None else lines[-1]
    return one_line(mask(said), MOST_LINE)
