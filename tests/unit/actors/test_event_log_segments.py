"""When a segment of the event log is full: the larger the state with which it begins, the later."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ray_sentinel.actors.coordinator.event_log import log as event_log
from ray_sentinel.actors.coordinator.event_log.log import (
    EVENTS_PER_STATE,
    LAST_EVENT_BYTES,
    LOG_SHARE,
    MOST_EVENTS,
    MOST_STATE,
    MOST_UNPACKED,
    SEGMENT_BYTES,
    EventLog,
    begun_segment,
    most_events,
    packed_state,
    segments,
    unpacked_state,
)
from ray_sentinel.engine.events import DumpAsked, Tick

MIB = 1 << 20
LINE = 100
LARGE_LOG = 1 << 40


def state_of(size: int) -> bytes:
    """A state that cannot be compressed, as the measured values of ranks can hardly be."""
    return random.Random(size).randbytes(size)


def events_in(path: Path) -> int:
    return sum(1 for _ in begun_segment(path)[1])


def filled(log: EventLog, state: bytes) -> int:
    """The number of events that a segment of ``log`` takes which begins with ``state``."""
    log.append(Tick(time=0.0), state)
    count = 1
    while not log.begins:
        log.append(Tick(time=float(count)))
        count += 1
    return count


@pytest.mark.parametrize(
    ("packed", "log_bytes", "events"),
    [
        (0, LARGE_LOG, SEGMENT_BYTES),
        (MIB, LARGE_LOG, SEGMENT_BYTES),
        (10 * MIB, LARGE_LOG, 10 * MIB * EVENTS_PER_STATE),
        (38 * MIB, LARGE_LOG, MOST_EVENTS),
        (38 * MIB, 80 * MIB, 80 * MIB // LOG_SHARE),
        (38 * MIB, MIB, SEGMENT_BYTES),
    ],
)
def test_events_are_in_proportion_to_the_packed_state(
    packed: int, log_bytes: int, events: int
) -> None:
    assert most_events(packed, log_bytes) == events


@given(st.integers(0, MOST_STATE))
def test_a_segment_with_any_state_can_be_read(state: int) -> None:
    # Base64 has four characters for three bytes, and what cannot be compressed grows a little.
    header = (state + state // 1000 + 64) * 4 / 3 + 1000
    full = most_events(state, LARGE_LOG)
    assert full >= min(EVENTS_PER_STATE * state, 60 * MIB)
    assert header + full + SEGMENT_BYTES < MOST_UNPACKED - LAST_EVENT_BYTES + MIB


def test_a_segment_with_a_large_state_takes_more_events(tmp_path: Path) -> None:
    log = EventLog(tmp_path, segment_bytes=1000)
    few = filled(log, b"")
    state = state_of(10_000)
    many = filled(log, state)
    log.close()
    size = segments(tmp_path)[-1].stat().st_size
    with segments(tmp_path)[-1].open("rb") as file:
        size -= len(file.readline())
    assert size // EVENTS_PER_STATE in range(10_000, 10_100)
    assert many > 40 * few
    header, events = begun_segment(segments(tmp_path)[-1])
    assert unpacked_state(header) == state
    assert len(list(events)) == many


def test_it_is_the_packed_state_that_counts(tmp_path: Path) -> None:
    log = EventLog(tmp_path, segment_bytes=1000)
    assert filled(log, bytes(100_000)) < filled(log, state_of(1000))


def test_states_take_half_of_a_log_of_reports(tmp_path: Path) -> None:
    """Each event is one of which a fifth is not known from the one before."""
    values = random.Random(1)
    log = EventLog(tmp_path, segment_bytes=1000)
    state = state_of(20_000)
    for number in range(3000):
        job = "a report of the same ranks as the one before, in which little is new " * 2
        event = DumpAsked(time=float(number), job=job + values.randbytes(20).hex())
        log.append(event, state if log.begins else b"")
    log.close()
    packed = [path.stat().st_size for path in segments(tmp_path)[:-1]]
    assert len(packed) > 3
    states = len(packed) * len(packed_state(state))
    assert 0.3 < states / sum(packed) < 0.6


def test_a_full_segment_to_which_no_state_comes_goes_on(tmp_path: Path) -> None:
    """What waited for a slow disk follows before the event that brings the state."""
    log = EventLog(tmp_path, segment_bytes=1000)
    count = filled(log, b"state")
    for number in range(500):
        log.append(Tick(time=float(count + number)))
    assert log.begins
    assert len(segments(tmp_path)) == 1
    log.append(Tick(time=1e6), b"state")
    log.close()
    assert [events_in(path) for path in segments(tmp_path)] == [count + 500, 1]


@settings(max_examples=30, deadline=None)
@given(
    st.lists(st.integers(0, 20_000), min_size=1, max_size=8),
    st.integers(2000, 60_000),
    st.integers(500, 3000),
)
def test_a_log_is_bounded_and_has_no_gap(
    tmp_path_factory: pytest.TempPathFactory, sizes: list[int], max_bytes: int, least: int
) -> None:
    folder = tmp_path_factory.mktemp("log")
    log = EventLog(folder, max_bytes=max_bytes, segment_bytes=least)
    number, most_header = 0, 0
    for size in sizes:
        state = state_of(size)
        most_header = max(most_header, 4 * len(packed_state(state)) // 3 + 1000)
        begins = True
        while begins or not log.begins:
            event = DumpAsked(time=float(number), job="j" * (number % LINE))
            log.append(event, state if begins else b"")
            begins, number = False, number + 1
            total = sum(path.stat().st_size for path in folder.iterdir())
            # A header alone may be larger than the log; then it is all that is left.
            unpacked = max(least, max_bytes // LOG_SHARE) + 2 * LINE
            assert total <= max(max_bytes, most_header) + unpacked
    log.close()
    times = [event.time for event in event_log.read(folder)[1]]
    assert times == [float(n) for n in range(int(times[0]), number)]
