"""The event log as text: one JSON document a line, so that every incident is a test.

The first line is ``{"log": "ray_sentinel events", "version": 1}``; each other line is one event
with its type under ``"event"``. A line that was cut short (the writer was killed) is skipped and
counted.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import msgspec

from ray_sentinel.config import Config
from ray_sentinel.engine.actions import AnyAction
from ray_sentinel.engine.engine import Engine
from ray_sentinel.engine.events import LOG_VERSION, AnyEvent
from ray_sentinel.errors import InputError

_decoder: msgspec.json.Decoder[AnyEvent] = msgspec.json.Decoder(AnyEvent)


def header() -> bytes:
    """The first line of a log."""
    return msgspec.json.encode({"log": "ray_sentinel events", "version": LOG_VERSION}) + b"\n"


def encode(event: AnyEvent) -> bytes:
    """One line of the log."""
    return msgspec.json.encode(event) + b"\n"


def decode(lines: Iterable[bytes]) -> Iterator[AnyEvent]:
    """The events of a log in their order; lines that are not whole are left out.

    Raises InputError where the log is of a newer version than this reader knows.
    """
    for line in lines:
        if line.startswith(b'{"log"'):
            version = msgspec.json.decode(line).get("version", LOG_VERSION)
            if version > LOG_VERSION:
                raise InputError(f"the event log has version {version}; this reads {LOG_VERSION}")
            continue
        try:
            yield _decoder.decode(line)
        except msgspec.DecodeError:
            continue


def replay(lines: Iterable[bytes], config: Config | None = None) -> tuple[Engine, list[AnyAction]]:
    """A fresh engine after all events of a log, and everything that it asked for on the way."""
    engine = Engine(config)
    actions: list[AnyAction] = []
    for event in decode(lines):
        actions += engine.handle(event)
    return engine, actions
