"""A restarted coordinator's engine, restored from the event log.

The newest segment that begins with a usable state provides it, and the events since are replayed.
What open cases had requested and not yet received is requested again. Each reported incident is an
event in the log as well, so it stays as it was reported, whatever a later version makes of the
events before it.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import NamedTuple

import msgspec

from ray_sentinel.actors.coordinator.engine_loop import collecting_later, log_failures
from ray_sentinel.actors.coordinator.event_log.log import (
    SegmentHeader,
    begun_segment,
    read_header,
    segments,
    unpacked_state,
)
from ray_sentinel.bounded import within
from ray_sentinel.clock import Clock, SteadyClock, SystemClock
from ray_sentinel.config import Config
from ray_sentinel.engine.actions import AnyAction
from ray_sentinel.engine.engine import Engine
from ray_sentinel.engine.events import AnyEvent
from ray_sentinel.engine.state import EngineState, unpacked
from ray_sentinel.errors import InputError
from ray_sentinel.progress.rank.own_process import boot_number

log = logging.getLogger(__name__)

MOST_SEGMENTS = 8
"""Most segments that are replayed: about a minute of work at worst."""
READ_SECONDS = 30.0
"""Seconds that the disk has to deliver the segments."""

Segment = tuple[SegmentHeader, Iterator[AnyEvent]]


class Restored(NamedTuple):
    """The result of reading a log."""

    engine: Engine
    pending: list[AnyAction]
    """Unanswered actions, to be done again."""
    events: int
    """How many events were replayed."""
    newest: SegmentHeader | None = None
    """The header of the log's last segment; None where there is no log."""


class _Kept(NamedTuple):
    """What is read of a log."""

    state: EngineState | None = None
    """The state before the first event; None where no segment gives it."""
    segments: tuple[Segment, ...] = ()
    newest: SegmentHeader | None = None


def restore(folder: Path | None, config: Config, taken: int = 0) -> Restored:
    """The engine after the log in ``folder``; a fresh one where there is none.

    ``taken`` is the highest number of an incident with files in our folder, whether ours or of
    others who share it: no new incident gets it. Raises ConfigError if the rules' settings are
    wrong, TimeoutError if the folder hangs.
    """
    count = 0
    # Nearly everything that is made here is kept.
    with collecting_later():
        kept = within(READ_SECONDS, partial(_recent, folder)) if folder is not None else _Kept()
        engine = Engine(config, state=kept.state)
        for _, events in kept.segments:
            for event in events:
                engine.handle(event)
                count += 1
    log_failures(engine)
    engine.store.skip(taken)
    return Restored(engine, engine.unanswered(), count, kept.newest)


def resumed_clock(
    newest: SegmentHeader | None, last: float, clock: Clock | None = None
) -> SteadyClock:
    """The clock of a coordinator whose log ends at ``last``, in the segment ``newest``. On the same
    machine it continues the previous coordinator's clock, however the wall clock was set meanwhile;
    otherwise it begins with the wall clock, but not before ``last``."""
    clock = clock or SystemClock()
    if newest is not None and newest.boot and newest.boot == boot_number():
        resumed = SteadyClock(clock, offset=newest.clock_offset)
        if resumed.now() >= last:
            return resumed
    begun = SteadyClock(clock)
    return begun if begun.now() >= last else SteadyClock(clock, offset=last - clock.monotonic())


def _recent(folder: Path) -> _Kept:
    paths = segments(folder)
    oldest = max(0, len(paths) - MOST_SEGMENTS)
    found: list[Segment] = []
    while len(paths) > oldest:
        path = paths.pop()
        try:
            header, events = begun_segment(path)
        except InputError as error:
            log.warning("a part of the event log is lost: %s", error)
            if not found and _header_of(path) is None:
                continue  # killed while it began: nothing was in it
            paths.append(path)
            break
        found.insert(0, (header, events))
        if state := state_of(header):
            return _Kept(state, tuple(found), found[-1][0])
    return _without_events(paths, found)


def _without_events(paths: list[Path], found: list[Segment]) -> _Kept:
    """The engine for when ``found`` is all that can be replayed, and begins with no state. The
    newest earlier segment gives it. Across the gap only incidents are taken over: what nodes and
    ranks did meanwhile is not known, and would look like silence."""
    newest = found[-1][0] if found else None
    for path in reversed(paths):
        header = _header_of(path)
        newest = newest or header
        state = state_of(header) if header is not None else None
        if state is not None:
            return _Kept(state.of_incidents() if found else state, tuple(found), newest)
    return _Kept(None, tuple(found), newest)


def _header_of(path: Path) -> SegmentHeader | None:
    try:
        return read_header(path)
    except InputError:
        return None


def state_of(header: SegmentHeader) -> EngineState | None:
    """The state with which a segment begins; None if it has no usable one."""
    try:
        if not (state := unpacked_state(header)):
            return None
        known, problem = unpacked(state)
    except (InputError, msgspec.DecodeError, ValueError, RecursionError) as error:
        log.warning("the engine's state in the event log is of no use: %s", error)
        return None
    if problem:
        log.warning("of the engine's state only the incidents are taken over: %s", problem)
    return known
