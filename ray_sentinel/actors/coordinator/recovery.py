"""A restarted coordinator's engine: as it was, from the event log.

The newest segment of the log that begins with the engine's state gives that, and its events are
replayed. What open cases had asked for and not yet been given is asked for again. Each incident
that is told begins a segment, so it stays as it was told.
"""

from __future__ import annotations

import logging
from functools import partial
from pathlib import Path
from typing import NamedTuple

import msgspec

from ray_sentinel.actors.coordinator.event_log import (
    SegmentHeader,
    read_segment,
    segments,
    unpacked_state,
)
from ray_sentinel.actors.coordinator.handling import handled
from ray_sentinel.bounded import within
from ray_sentinel.clock import Clock, SteadyClock, SystemClock
from ray_sentinel.config import Config
from ray_sentinel.engine.actions import AnyAction
from ray_sentinel.engine.engine import Engine
from ray_sentinel.engine.events import AnyEvent
from ray_sentinel.engine.state import unpacked
from ray_sentinel.errors import InputError
from ray_sentinel.progress.own_process import boot_number

log = logging.getLogger(__name__)

MOST_SEGMENTS = 8
"""About a minute of replay at worst."""
READ_SECONDS = 30.0
"""For the disk to give them."""

Segment = tuple[SegmentHeader, list[AnyEvent]]


class Restored(NamedTuple):
    """What a log gives back."""

    engine: Engine
    pending: list[AnyAction]
    """Unanswered actions, to be done again."""
    events: int
    """How many events it took."""
    newest: SegmentHeader | None = None
    """Of the log's last segment; None where there is no log."""


def restore(folder: Path | None, config: Config, taken: int = 0) -> Restored:
    """The engine after the log in ``folder``; a fresh one where there is none.

    ``taken`` is the highest number of an incident whose files lie in our place, ours or of others
    who share it: no new one gets it. Raises ConfigError where the rules' settings are wrong,
    TimeoutError where the folder hangs.
    """
    found = within(READ_SECONDS, partial(_recent, folder)) if folder is not None else []
    engine = _begun(found[0][0] if found else None, config)
    for _, events in found:
        for event in events:
            handled(engine, event)
    engine.store.skip(taken)
    count = sum(len(events) for _, events in found)
    return Restored(engine, engine.unanswered(), count, found[-1][0] if found else None)


def resumed_clock(
    newest: SegmentHeader | None, last: float, clock: Clock | None = None
) -> SteadyClock:
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


def _begun(newest: SegmentHeader | None, config: Config) -> Engine:
    """The engine that a segment begins with."""
    if newest is None:
        return Engine(config)
    try:
        if state := unpacked_state(newest):
            known, problem = unpacked(state)
            if problem:
                log.warning("of the engine's state only the incidents are taken over: %s", problem)
            return Engine(config, state=known)
    except (InputError, msgspec.DecodeError) as error:
        log.warning("the engine's state in the event log is of no use: %s", error)
    # Of an older version, whose incidents are those after the first event: the replay makes the
    # open ones anew.
    engine = Engine(config, (i for i in newest.incidents if i.resolved_at is not None))
    lost = [int(i.id) for i in newest.incidents if i.id.isdecimal()]
    engine.store.skip(max((newest.after, *lost)))
    return engine


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
        found.insert(0, segment)
        header = segment[0]
        if header.state is None:  # of an older version
            whole = all(incident.resolved_at is not None for incident in header.incidents)
        else:
            whole = bool(header.state)
        if whole:
            break
    return found
