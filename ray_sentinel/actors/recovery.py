"""A restarted coordinator's engine: as it was, from the event log.

The log is replayed into a fresh engine, from the newest segment that began without an open
incident, or after a gap; that segment's header says what was known of the jobs by then. Incidents
are as they were told, whatever the replay makes of them. What open cases had asked for and not yet
been given is asked for again.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import NamedTuple

from ray_sentinel.actors.eventlog import Header, read_segment, segments
from ray_sentinel.actors.handling import handled
from ray_sentinel.bounded import within
from ray_sentinel.clock import Clock, SteadyClock, SystemClock
from ray_sentinel.config import Config
from ray_sentinel.engine.actions import AnyAction, AskRecorder, Capture, TakeStacks
from ray_sentinel.engine.engine import Engine
from ray_sentinel.engine.events import (
    AnyEvent,
    CaptureDone,
    IncidentTold,
    RecorderExplained,
    StacksTaken,
)
from ray_sentinel.engine.table import OPEN
from ray_sentinel.errors import InputError
from ray_sentinel.progress.own_process import boot_number

log = logging.getLogger(__name__)

MOST_SEGMENTS = 8
"""About a minute of replay at worst."""
READ_SECONDS = 30.0
"""For the disk to give them."""

Key = tuple[str, str, int]
Segment = tuple[Header, list[AnyEvent]]


class Restored(NamedTuple):
    """What a log gives back."""

    engine: Engine
    pending: list[AnyAction]
    """Unanswered actions, to be done again."""
    events: int
    """How many events it took."""
    after: int
    """New incidents have higher numbers than this."""
    newest: Header | None = None
    """Of the log's last segment; None where there is no log."""


def restore(folder: Path | None, config: Config, taken: int = 0) -> Restored:
    """The engine after the log in ``folder``; a fresh one where there is none.

    ``taken`` is the highest number of an incident whose files lie in our place, ours or of others
    who share it: no new one gets it. Raises ConfigError where the rules' settings are wrong,
    TimeoutError where the folder hangs.
    """
    found = within(READ_SECONDS, partial(_recent, folder)) if folder is not None else []
    header = found[0][0] if found else Header(after=taken)
    known = tuple(incident for incident in header.incidents if incident.state not in OPEN)
    after = header.after
    if len(known) < len(header.incidents):
        # The beginning of an open incident is lost: the replay does not make it anew.
        after = max(after, *(int(i.id) for i in header.incidents if i.id.isdecimal()))
    engine = Engine(config, known, after)
    if header.memory is not None:
        engine.recall(header.memory, header.started_at)
    open_actions: dict[Key, AnyAction] = {}
    for event in _replayed(engine, found):
        if answered := _answers(event):
            open_actions.pop(answered, None)
        for action in handled(engine, event)[0]:
            if asked := _asks(action):
                open_actions[asked] = action
    engine.book.skip(taken)
    pending = [action for key, action in open_actions.items() if _wanted(engine, key)]
    count = sum(len(events) for _, events in found)
    return Restored(engine, pending, count, after, found[-1][0] if found else None)


def resumed_clock(newest: Header | None, last: float, clock: Clock | None = None) -> SteadyClock:
    """The clock of a coordinator whose log ends at ``last``, in the segment ``newest``: on the same
    machine that of the coordinator before it, however the wall clock was set meanwhile; else it
    begins with the wall clock, but not before ``last``."""
    clock = clock or SystemClock()
    if newest is not None and newest.boot and newest.boot == boot_number():
        resumed = SteadyClock(clock, offset=newest.clock_offset)
        if resumed.now() >= last:
            return resumed
    begun = SteadyClock(clock)
    return begun if begun.now() >= last else SteadyClock(clock, offset=last - clock.monotonic())


def _replayed(engine: Engine, found: list[Segment]) -> Iterator[AnyEvent]:
    """All events, each segment's after what its header says."""
    for header, events in found:
        if header.memory is not None:
            for incident in header.incidents:
                if incident.confirmed_at is not None:
                    yield IncidentTold(time=header.started_at, incident=incident)
            engine.book.skip(header.memory.after)
        yield from events


def _wanted(engine: Engine, key: Key) -> bool:
    """Whether its case is still open and has not asked for later stacks since."""
    what, incident, number = key
    case = engine.book.cases.get(incident)
    return case is not None and (what != "stacks" or number == case.asked_round)


def _recent(folder: Path) -> list[Segment]:
    found: list[Segment] = []
    for path in reversed(segments(folder)[-MOST_SEGMENTS:]):
        try:
            segment = read_segment(path)
        except InputError as error:
            log.warning("a part of the event log is lost: %s", error)
            if not found:
                continue  # killed while it began: nothing was in it
            break
        if segment[0].lost and found and found[0][0].memory is not None:
            break  # what came after a gap, until all that was known was written down
        found.insert(0, segment)
        whole = segment[0].lost and segment[0].memory is not None
        if whole or not any(incident.state in OPEN for incident in segment[0].incidents):
            break
    return found


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
