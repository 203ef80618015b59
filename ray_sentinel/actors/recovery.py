"""A restarted coordinator's engine: as it was, from the event log.

The log is replayed into a fresh engine, from the newest segment that began without an open
incident. What the engine had asked for and not yet been given is asked for again.
"""

from __future__ import annotations

import logging
from pathlib import Path

from ray_sentinel.actors.eventlog import Header, read_segment, segments
from ray_sentinel.config import Config
from ray_sentinel.engine.actions import AnyAction, AskRecorder, Capture, TakeStacks
from ray_sentinel.engine.engine import Engine
from ray_sentinel.engine.events import AnyEvent, CaptureDone, RecorderExplained, StacksTaken
from ray_sentinel.engine.table import OPEN
from ray_sentinel.errors import InputError

log = logging.getLogger(__name__)

MOST_SEGMENTS = 8
"""About a minute of replay at worst."""

Key = tuple[str, str, int]


def restore(folder: Path | None, config: Config) -> tuple[Engine, list[AnyAction], int]:
    """The engine after the log in ``folder``, its unanswered actions, and how many events it took.

    Without a log: a fresh engine. Raises ConfigError where the rules' settings are wrong.
    """
    header, events = _recent(folder) if folder is not None else (Header(), [])
    known = tuple(incident for incident in header.incidents if incident.state not in OPEN)
    engine = Engine(config, known)
    open_actions: dict[Key, AnyAction] = {}
    for event in events:
        if answered := _answers(event):
            open_actions.pop(answered, None)
        for action in engine.handle(event):
            if asked := _asks(action):
                open_actions[asked] = action
    return engine, list(open_actions.values()), len(events)


def _recent(folder: Path) -> tuple[Header, list[AnyEvent]]:
    header, events = Header(), list[AnyEvent]()
    for path in reversed(segments(folder)[-MOST_SEGMENTS:]):
        try:
            header, older = read_segment(path)
        except InputError as error:
            log.warning("an older part of the event log is lost: %s", error)
            break
        events = [*older, *events]
        if not any(incident.state in OPEN for incident in header.incidents):
            break
    return header, events


def _asks(action: AnyAction) -> Key | None:
    match action:
        case TakeStacks(incident=incident, round=number) if incident:
            return ("stacks", incident, number)
        case AskRecorder(incident=incident):
            return ("recorder", incident, 0)
        case Capture(incident=incident):
            return ("capture", incident.id, 0)
    return None


def _answers(event: AnyEvent) -> Key | None:
    match event:
        case StacksTaken(incident=incident, round=number):
            return ("stacks", incident, number)
        case RecorderExplained(incident=incident):
            return ("recorder", incident, 0)
        case CaptureDone(incident=incident):
            return ("capture", incident, 0)
    return None
