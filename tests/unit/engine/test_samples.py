"""Samples on their way from a node to the engine: a table of keys once, then only values."""

from __future__ import annotations

import math
import struct
import threading

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ray_sentinel.engine.events import SnapshotReceived
from ray_sentinel.engine.telemetry.series import (
    CLOSE_SECONDS,
    EVERY,
    KEPT_SECONDS,
    SLACK,
    STREAMS,
    THIN_SECONDS,
    NodeTelemetry,
    SampleStream,
    Telemetry,
)
from ray_sentinel.model.identity import Node
from ray_sentinel.model.progress import Snapshot
from ray_sentinel.model.samples import (
    ABSENT,
    ABSENT_BYTES,
    WHOLE_SECONDS,
    Floats,
    SampleBatch,
    SampleSender,
    SeriesKey,
    StreamName,
    is_absent,
)

A, B, C, D = (SeriesKey("hw_m", (("device", name),)) for name in "abcd")
ROW = 5.0
"""Seconds between two batches."""


def batch(sender: SampleSender, stream: SampleStream, now: float, *keys: SeriesKey) -> SampleBatch:
    held = stream.held if stream.size else None
    return sender.batch(dict.fromkeys(keys, now), held, now)


def kept(stream: SampleStream, key: SeriesKey) -> list[tuple[float, float]]:
    node = NodeTelemetry(streams={"rules": stream})
    found = node.of_name(key.name)
    return found[key.labels].samples if key.labels in found else []


def test_keys_are_sent_once_and_then_only_values() -> None:
    sender, stream = SampleSender("rules", "s"), SampleStream()
    first = batch(sender, stream, 5.0, A, B)
    stream.add(first, 5.0)
    second = batch(sender, stream, 10.0, A, B)
    stream.add(second, 10.0)
    third = batch(sender, stream, 15.0, A, B, C)
    stream.add(third, 15.0)
    assert [found.keys for found in (first, second, third)] == [(A, B), (), (C,)]
    assert len(second.values) == 16
    assert kept(stream, B) == [(5.0, 5.0), (10.0, 10.0), (15.0, 15.0)]
    assert kept(stream, C) == [(15.0, 15.0)]
    whole = batch(sender, stream, WHOLE_SECONDS + 5.0, A, B, C)
    assert (whole.known, whole.keys) == (0, (A, B, C)), "now and then for a replay"


def test_values_of_keys_that_are_not_known_are_left_out_until_they_are_sent() -> None:
    sender, stream = SampleSender("rules", "s"), SampleStream()
    stream.add(batch(sender, stream, 5.0, A), 5.0)
    again = SampleStream()
    again.add(batch(sender, stream, 10.0, A), 10.0)
    assert not again.times
    again.add(batch(sender, again, 15.0, A), 15.0)
    assert kept(again, A) == [(15.0, 15.0)]


def test_a_series_that_pauses_and_one_that_ends_keep_their_times() -> None:
    sender, stream = SampleSender("rules", "s"), SampleStream()
    for now, keys in ((5.0, (A, B)), (10.0, (A,)), (15.0, (A, B)), (20.0, (B,))):
        stream.add(batch(sender, stream, now, *keys), now)
    assert kept(stream, A) == [(5.0, 5.0), (10.0, 10.0), (15.0, 15.0)]
    assert kept(stream, B) == [(5.0, 5.0), (15.0, 15.0), (20.0, 20.0)]
    assert stream.row(10.0) == {A: 10.0}
    assert stream.row(11.0) == stream.row(99.0) == {}


def test_a_value_that_is_no_number_is_no_absent_one() -> None:
    sender, stream = SampleSender("history", "s"), SampleStream()
    values = {A: math.nan, B: math.inf, C: 1.0}
    stream.add(sender.batch(values, None, 5.0), 5.0)
    stream.add(sender.batch({C: 2.0}, stream.held, 10.0), 10.0)
    row = stream.row(5.0)
    assert math.isnan(row[A])
    assert row[B] == math.inf
    assert stream.row(10.0) == {C: 2.0}
    assert kept(stream, A) == kept(stream, B) == []
    assert is_absent(ABSENT)
    assert struct.pack("<d", Floats((ABSENT,))[0]) == ABSENT_BYTES
    assert Floats.unpacked(Floats((ABSENT, 1.5)).packed())[1] == 1.5


@pytest.mark.parametrize(
    "change",
    [{"values": b"123"}, {"values": b""}, {"known": 7}, {"table": 5}, {"keys": (B, C)}],
    ids=repr,
)
def test_what_does_not_fit_together_changes_nothing(change: dict[str, object]) -> None:
    sender, stream = SampleSender("rules", "s"), SampleStream()
    stream.add(batch(sender, stream, 5.0, A), 5.0)
    before = msgspec.structs.replace(stream, columns=stream.columns.copy())
    wrong = msgspec.structs.replace(batch(sender, stream, 10.0, A), **change)
    assert not stream.add(wrong, 10.0)
    assert stream == before
    assert kept(stream, A) == [(5.0, 5.0)]


def test_one_key_twice_is_one_series() -> None:
    stream = SampleStream()
    twice = SampleBatch(
        stream="rules",
        sender="s",
        number=1,
        table=0,
        keys=(A, A),
        values=Floats((1.0, 2.0)).packed(),
    )
    stream.add(twice, 5.0)
    assert kept(stream, A) == [(5.0, 1.0)]


def test_series_that_are_renamed_all_the_time_are_bounded_on_both_sides() -> None:
    sender, stream = SampleSender("rules", "s"), SampleStream()
    node = NodeTelemetry(streams={"rules": stream})
    longest = 0
    for turn in range(1, 900):
        now = turn * ROW
        made = batch(sender, stream, now, A, SeriesKey("hw_m", (("device", f"veth{turn}"),)))
        longest = max(longest, len(made.values) // 8)
        node.add(made, now)
    assert longest < 16
    assert stream.columns.width < KEPT_SECONDS / ROW + 60.0 / ROW + SLACK + longest
    assert len(stream.times) <= KEPT_SECONDS / ROW + SLACK


ACTS = st.sampled_from(["arrives", "lost", "late", "doubled", "receipt lost"])


@given(
    st.lists(
        st.tuples(ACTS, st.sets(st.sampled_from([A, B, C, D]), min_size=1), st.integers(0, 9)),
        max_size=25,
    ),
    st.sets(st.sampled_from([A, B, C, D]), min_size=1),
)
def test_after_any_loss_order_and_restart_the_next_whole_table_gives_the_same(
    acts: list[tuple[str, set[SeriesKey], int]], last: set[SeriesKey]
) -> None:
    """Every value that is kept is one that was sent for its series, and after the answer to the
    first batch that arrives again both sides agree, whatever went before."""
    sender, stream, held, life = SampleSender("rules", "0"), SampleStream(), None, 0
    late: list[SampleBatch] = []
    now = 0.0
    sent: set[tuple[SeriesKey, float]] = set()
    for act, keys, chance in acts:
        now += ROW
        if chance == 0:
            stream = SampleStream()  # the coordinator was started anew
        elif chance == 1:
            life, held = life + 1, None
            sender = SampleSender("rules", str(life))
        made = sender.batch(dict.fromkeys(sorted(keys, key=repr), now), held, now)
        sent |= {(key, now) for key in keys}
        if act == "late":
            late.append(made)
        if act in ("lost", "late"):
            continue
        stream.add(made, now)
        if act == "doubled":
            stream.add(made, now + 0.5)
        for old in late:
            stream.add(old, now + 0.6)
        late.clear()
        if act != "receipt lost":
            held = stream.held
    for _ in range(2):
        now += ROW
        sent |= {(key, now) for key in last}
        made = sender.batch(dict.fromkeys(sorted(last, key=repr), now), held, now)
        stream.add(made, now)
        held = stream.held
    assert stream.row(now) == dict.fromkeys(last, now)
    for at in stream.times:
        assert {(key, value) for key, value in stream.row(at).items()} <= sent
    assert len(stream.columns.numbers) == len(stream.times) * stream.columns.width


def test_what_is_too_much_goes_from_the_history_s_own_series_first() -> None:
    known = Telemetry()
    senders: dict[StreamName, SampleSender] = {name: SampleSender(name, "s") for name in STREAMS}

    def tell(first: int, last: int, most: int = 8 * 4 * 100) -> NodeTelemetry:
        for turn in range(first, last):
            now = turn * ROW
            values = {A: 1.0, B: 2.0, C: float(turn)}
            samples = tuple(
                senders[name].batch(values, known.held("n").get(name), now) for name in STREAMS
            )
            node = Node(id="n", host="h", address="")
            snapshot = Snapshot(node=node, time=now, sequence=turn, samples=samples)
            known.add(snapshot, now, 0.0, most)
        return known.of("n")

    node = tell(1, 40)
    assert not known.cut
    node = tell(40, 97)
    assert known.cut
    assert len(node.streams["rules"].times) == 96
    assert len(node.streams["history"].times) < 25
    tell(97, 300)
    assert known.cut
    assert known.size <= 8 * 4 * 100 + 2 * 8 * 4 * 60 / ROW
    assert node.streams["rules"].times[-1] == 299 * ROW
    assert node.of_name("hw_m")[A.labels].covers(299 * ROW, 300.0)
    tell(300, 320, 1 << 20)
    assert not known.cut


@given(
    st.lists(
        st.tuples(
            st.sampled_from([4.5, 5.0, 6.0, 13.0, 40.0, 700.0]),
            st.sets(st.sampled_from([A, B, C, D]), min_size=1),
            st.booleans(),
        ),
        max_size=200,
    )
)
def test_old_samples_that_are_thinned_are_of_those_that_were_and_new_ones_stay(
    steps: list[tuple[float, set[SeriesKey], bool]],
) -> None:
    sender, whole, thinned = SampleSender("rules", "s"), SampleStream(), SampleStream()
    now = 0.0
    for seconds, keys, thin in steps:
        now += seconds
        made = sender.batch(dict.fromkeys(sorted(keys, key=repr), now), whole.held, now)
        for stream in (whole, thinned):
            stream.add(made, now)
        if thin:
            thinned.thin(now)
    close = now - CLOSE_SECONDS
    there = set(whole.times)
    # Fewer samples, so some that are just too old may be left.
    recent = [at for at in thinned.times if at >= now - KEPT_SECONDS]
    assert set(recent) <= there
    assert all(thinned.row(at) == whole.row(at) for at in recent)
    assert [at for at in recent if at >= close] == [at for at in whole.times if at >= close]
    assert len(thinned.columns.numbers) == len(thinned.times) * thinned.columns.width


def test_where_there_is_not_room_for_all_old_samples_are_kept_less_often_and_none_goes() -> None:
    known = Telemetry()
    sender = SampleSender("rules", "s")
    most = 8 * 3 * 300
    for turn in range(1, 800):
        now = turn * ROW
        samples = (sender.batch({A: now, B: 1.0}, known.held("n").get("rules"), now),)
        node = Node(id="n", host="h", address="")
        known.add(Snapshot(node=node, time=now, sequence=turn, samples=samples), now, 0.0, most)
        assert not known.cut
        assert known.size <= most + 8 * 3 * (60.0 / ROW + SLACK)
    series = known.of("n").of_name("hw_m")[A.labels]
    assert series.covers(now, KEPT_SECONDS - THIN_SECONDS)
    assert len(series.within(now, CLOSE_SECONDS)) == CLOSE_SECONDS / ROW + 1
    assert series.rise(now, KEPT_SECONDS) >= KEPT_SECONDS - THIN_SECONDS


def test_a_row_of_thinned_streams_has_the_values_of_both() -> None:
    known = NodeTelemetry()
    senders = {name: SampleSender(name, "s") for name in STREAMS}
    for turn in range(1, 361):
        for name in STREAMS:
            # The history comes six times as seldom, and begins later.
            if name == "rules" or turn % 6 == 1:
                held = known.streams.get(name, SampleStream()).held
                known.add(
                    senders[name].batch({A if name == "rules" else B: 1.0}, held, 5.0 * turn),
                    5.0 * turn,
                )
        if turn % 12 == 0:
            for stream in known.streams.values():
                stream.thin(5.0 * turn)
    rows = list(known.rows(0.0, 30.0))
    assert len(rows) >= 50
    assert all({A, B} <= set(row) for at, row in rows[1:] if row)


def test_half_an_hour_is_kept_of_what_is_not_sent_any_more_too() -> None:
    known = Telemetry()
    sending: dict[tuple[str, StreamName], SampleSender] = {
        (node, name): SampleSender(name, node) for node in "ab" for name in STREAMS
    }

    def tell(until: float, node_id: str, *names: StreamName) -> None:
        senders = [sending[node_id, name] for name in names]
        held = known.held(node_id)
        samples = tuple(one.batch({A: until}, held.get(one.stream), until) for one in senders)
        node = Node(id=node_id, host=node_id, address="")
        known.add(Snapshot(node=node, time=until, sequence=0, samples=samples), until, 0.0)

    for turn in range(1, 800):
        tell(turn * ROW, "a", *STREAMS[: 2 if turn < 300 else 1])
        if turn < 300:
            tell(turn * ROW, "b", *STREAMS)
    now = 799 * ROW
    assert known.of("a").streams["rules"].times[-1] == now
    assert not known.of("a").streams["history"].times, "a job's Prometheus has what comes now"
    assert not any(stream.times for stream in known.of("b").streams.values()), "it is silent"
    rows = list(known.rows({}, 0.0, ROW, threading.Lock()))
    assert rows[0][0] >= now - KEPT_SECONDS - SLACK * ROW
    tell(now + ROW, "b", "rules")
    assert known.of("b").streams["rules"].row(now + ROW) == {A: now + ROW}


def test_what_comes_at_one_moment_is_one_row_and_rows_are_as_far_apart_as_is_wanted() -> None:
    known = NodeTelemetry()
    rules, others = SampleSender("rules", "s"), SampleSender("history", "s")
    for turn in range(1, 41):
        now = turn * ROW
        held = {name: stream.held for name, stream in known.streams.items()}
        known.add(rules.batch({A: now}, held.get("rules"), now), now)
        if turn % 4 == 0:
            known.add(others.batch({B: -now}, held.get("history"), now), now)
    rows = list(known.rows(100.0, 20.0))
    assert rows == [(at, {A: at, B: -at}) for at in (120.0, 140.0, 160.0, 180.0, 200.0)]
    assert list(known.rows(200.0, 20.0)) == []
    assert len(list(known.rows(100.0, ROW))) == 20


def test_a_report_of_a_version_before_is_taken_without_its_metrics() -> None:
    old = b'{"type":"SnapshotReceived","time":1.0,"snapshot":{"node":{"id":"n","host":"h",'
    old += b'"address":""},"time":1.0,"sequence":1,"gauges":{"hw_load1":0.5}}}'
    event = msgspec.json.decode(old, type=SnapshotReceived)
    assert event.snapshot.samples == ()
    assert EVERY < ROW


def test_numbers_with_the_same_one_absent_are_equal() -> None:
    assert Floats([1.0, ABSENT]) == Floats([1.0, ABSENT])
    assert Floats([1.0, ABSENT]) != Floats([1.0, 2.0])
