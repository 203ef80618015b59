"""A stream's block of numbers, compared with a list of moments and what each series had then."""

from __future__ import annotations

import gc
import math
import tracemalloc
from operator import methodcaller
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ray_sentinel.engine.state import EngineState, unpacked
from ray_sentinel.engine.telemetry import sample_columns
from ray_sentinel.engine.telemetry.series import (
    CLOSE_SECONDS,
    GONE,
    KEPT_SECONDS,
    SLACK,
    THIN_SECONDS,
    NodeTelemetry,
    SampleStream,
    Telemetry,
)
from ray_sentinel.model.identity import Node
from ray_sentinel.model.progress import Snapshot
from ray_sentinel.model.samples import Floats, SampleSender, SeriesKey

A, B, C, D = (SeriesKey("hw_m", (("device", name),)) for name in "abcd")
E = SeriesKey("hw_n")
KEYS = (A, B, C, D, E)

Moment = dict[SeriesKey, float]


class PlainStream:
    """The same, said simply."""

    def __init__(self) -> None:
        self.moments: list[tuple[float, Moment]] = []
        self.sent: set[SeriesKey] = set()
        """What the sender's table has."""
        self.known: set[SeriesKey] = set()
        self.thinned_until = 0.0

    def add(self, at: float, values: Moment, table: set[SeriesKey]) -> None:
        self.sent = table
        self.known |= table
        self.moments.append((at, values))
        self.expire(at)

    def expire(self, now: float) -> None:
        old = sum(at < now - KEPT_SECONDS for at, _ in self.moments)
        if old >= SLACK or old == len(self.moments):
            self.drop(old)

    def drop(self, number: int) -> None:
        del self.moments[:number]

    def thin(self, now: float) -> None:
        new = [one for one in self.moments if one[0] < self.thinned_until]
        old = [one for one in self.moments if one[0] < now - CLOSE_SECONDS][len(new) :]
        rest = self.moments[len(new) + len(old) :]
        if len(old) < 2:
            return
        apart = (old[-1][0] - old[0][0]) / (len(old) - 1)
        every = math.floor(THIN_SECONDS / apart)
        whole = len(old) // max(every, 1) * every
        if every < 2 or not whole:
            return
        self.thinned_until = math.nextafter(old[whole - 1][0], math.inf)
        self.moments = new + old[:whole:every] + old[whole:] + rest

    def tidy(self) -> None:
        there = {
            key for _, one in self.moments for key, value in one.items() if not math.isnan(value)
        }
        self.known &= self.sent | there
        # What is dropped is gone, with the values that are no numbers.
        self.moments = [
            (at, {key: value for key, value in one.items() if key in self.known})
            for at, one in self.moments
        ]

    def samples(self, key: SeriesKey) -> list[tuple[float, float]]:
        return [
            (at, one[key]) for at, one in self.moments if key in one and math.isfinite(one[key])
        ]


def restored(stream: SampleStream) -> SampleStream:
    """What a coordinator that was killed has of it."""
    state = EngineState()
    state.cluster.telemetry.nodes["n"] = NodeTelemetry(streams={"rules": stream})
    state, problem = unpacked(state.packed())
    assert problem == ""
    found = state.cluster.telemetry.nodes["n"].streams["rules"]
    assert found == stream
    return found


VALUES = st.sampled_from([0.0, 1.0, 2.5, math.nan, math.inf])
MOMENTS = st.dictionaries(st.sampled_from(KEYS), VALUES, min_size=1)
ACTS = st.sampled_from(
    [*["nothing"] * 6, "restart of the sender", "thin", "tidy", "drop", "restore"]
)
GAPS = st.sampled_from([4.5, 4.5, 6.0, 13.0, 40.0, 700.0])


@given(st.lists(st.tuples(GAPS, MOMENTS, ACTS), max_size=120))
def test_any_batches_leave_what_a_plain_list_of_them_would(
    steps: list[tuple[float, Moment, str]],
) -> None:
    sender, life = SampleSender("rules", "0"), 0
    stream, plain = SampleStream(), PlainStream()
    now = 0.0
    for seconds, values, act in steps:
        now += seconds
        if act == "restart of the sender":
            life += 1
            sender = SampleSender("rules", str(life))
        batch = sender.batch(values, stream.held, now)
        table = {*(stream.columns.keys[: batch.known]), *batch.keys}
        stream.add(batch, now)
        plain.add(now, values, table)
        if act == "thin":
            stream.thin(now)
            plain.thin(now)
        elif act == "tidy":
            stream.tidy()
            plain.tidy()
        elif act == "drop":
            stream.drop(3)
            plain.drop(3)
        elif act == "restore":
            stream = restored(stream)
        assert set(stream.columns.keys) == plain.known
        assert stream.size_bytes == 8 * len(plain.moments) * (1 + len(plain.known))
    assert list(stream.times) == [at for at, _ in plain.moments]
    assert stream.thinned_until == plain.thinned_until
    for at, one in plain.moments:
        row = stream.row(at)
        assert {key: repr(row[key]) for key in row} == {key: repr(one[key]) for key in one}
    node = NodeTelemetry(streams={"rules": stream})
    for key in KEYS:
        series = node.of_name(key.name).get(key.labels)
        wanted = plain.samples(key)
        assert (series.samples if series is not None else []) == wanted
        current = bool(wanted) and now - wanted[-1][0] <= GONE
        assert (node.one(key.name, now, **dict(key.labels)) is not None) == current
        told = [one for labels, one in node.get(key.name, now) if labels == dict(key.labels)]
        assert [one.last for one in told] == [value for _, value in wanted[-1:] if current]


def test_a_snapshot_with_more_values_than_times_is_not_read() -> None:
    sender, stream = SampleSender("rules", "s"), SampleStream()
    stream.add(sender.batch({A: 1.0}, None, 5.0), 5.0)
    told: Any = msgspec.msgpack.decode(
        msgspec.msgpack.encode(stream, enc_hook=methodcaller("packed"))
    )
    nodes = {"n": {"streams": {"rules": {**told, "times": b""}}}}
    _, problem = unpacked(
        msgspec.msgpack.encode({"version": 1, "cluster": {"telemetry": {"nodes": nodes}}})
    )
    assert "more values than times" in problem


def moments_then_keys(stream: SampleStream, moments: int, keys: list[SeriesKey]) -> None:
    """As many moments of one series, and then one of as many others."""
    sender, again = SampleSender("rules", "s"), SampleSender("rules", "t")
    for number in range(moments):
        stream.add(sender.batch({A: float(number)}, stream.held, 5.0), 5.0)
    stream.add(again.batch(dict.fromkeys(keys, 1.0), None, 6.0), 6.0)


def test_many_moments_and_then_many_series_take_no_more_than_they_may(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sample_columns, "MOST_NUMBERS", 1000)
    stream, keys = SampleStream(), [SeriesKey(f"hw_m{number}") for number in range(99)]
    moments_then_keys(stream, 200, keys)
    # A hundred columns.
    assert 5 <= len(stream.times) <= 10
    assert len(stream.columns.numbers) == len(stream.times) * 100
    assert stream.row(6.0) == dict.fromkeys(keys, 1.0)
    assert stream.columns.row(len(stream.times) - 2) == {A: 199.0}
    sender = SampleSender("rules", "u")
    for number in range(20):
        at = 7.0 + number
        stream.add(sender.batch(dict.fromkeys(keys, at), stream.held, at), at)
    assert list(stream.times) == [17.0 + number for number in range(10)]
    assert stream.row(20.0) == dict.fromkeys(keys, 20.0)
    moments_then_keys(stream, 0, [SeriesKey(f"hw_n{number}") for number in range(3000)])
    assert list(stream.times) == [26.0], "the newest stays, however many series there are"


def test_a_snapshot_whose_series_have_different_lengths_is_not_read() -> None:
    rows, width = 1000, 100
    one = {"key": ["hw_m", [["device", "a"]]], "values": Floats(range(rows)).packed()}
    others = [{"key": [f"hw_m{number}", []], "values": b""} for number in range(width - 1)]
    for columns in ([one, *others], [*others, one]):
        told = {"times": Floats(range(rows)).packed(), "columns": columns}
        nodes = {"n": {"streams": {"rules": told}}}
        packed = msgspec.msgpack.encode({"version": 1, "cluster": {"telemetry": {"nodes": nodes}}})
        state, problem = unpacked(packed)
        assert problem
        assert state.cluster.telemetry.nodes == {}


@pytest.mark.parametrize("first", ["rules", "history"])
def test_a_series_that_is_in_both_streams_is_that_of_the_rules(first: str) -> None:
    node = NodeTelemetry()
    batches = {
        "rules": SampleSender("rules", "s").batch({A: 1.0, B: 2.0}, None, 5.0),
        "history": SampleSender("history", "s").batch({D: 4.0, B: 9.0, E: 3.0}, None, 5.0),
    }
    for _, batch in sorted(batches.items(), reverse=first == "rules"):
        node.add(batch, 5.0)
    assert {labels: one.last for labels, one in node.of_name("hw_m").items()} == {
        A.labels: 1.0, B.labels: 2.0, D.labels: 4.0,
    }  # fmt: skip
    assert [(labels["device"], one.last) for labels, one in node.get("hw_m", 9.0)] == [
        ("a", 1.0), ("b", 2.0), ("d", 4.0),
    ]  # fmt: skip
    found = node.one("hw_m", 9.0, device="b")
    assert found is not None
    assert found.last == 2.0
    assert node.has("hw_n")
    assert not node.has("hw_o")
    assert node.one("hw_m", 9.0 + GONE, device="b") is None


def test_lookups_see_series_that_join_and_end() -> None:
    node, sender = NodeTelemetry(), SampleSender("rules", "s")
    node.add(sender.batch({A: 1.0}, None, 5.0), 5.0)
    assert node.one("hw_m", 5.0, device="b") is None
    node.add(sender.batch({A: 1.0, B: 2.0}, node.streams["rules"].held, 10.0), 10.0)
    found = node.one("hw_m", 10.0, device="b")
    assert found is not None
    assert (found.samples, found.since) == ([(10.0, 2.0)], 10.0)
    again = SampleSender("rules", "t")
    node.add(again.batch({B: 3.0}, None, 15.0), 15.0)
    assert list(node.of_name("hw_m")) == [B.labels, A.labels]
    for turn in range(400):
        now = 20.0 + 5.0 * turn
        node.add(again.batch({B: 4.0}, node.streams["rules"].held, now), now)
    assert list(node.of_name("hw_m")) == [B.labels]


def test_what_is_counted_of_series_is_what_they_take() -> None:
    """With what their names, times and blocks take beside the numbers, after half an hour."""
    keys = [SeriesKey(f"hw_m{i % 16}", (("gpu", str(i // 16)),)) for i in range(131)]
    senders = {f"n{number}": SampleSender("rules", str(number)) for number in range(8)}
    known = Telemetry()
    gc.collect()
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        for turn in range(1, 400):
            now = 4.5 * turn
            for node_id, sender in senders.items():
                values = dict.fromkeys(keys, now)
                batch = sender.batch(values, known.held(node_id).get("rules"), now)
                node = Node(id=node_id, host=node_id, address="")
                snapshot = Snapshot(node=node, time=now, sequence=turn, samples=(batch,))
                known.add(snapshot, now, 0.0)
        for one in known.nodes.values():
            for key in keys:
                assert one.one(key.name, now, **dict(key.labels)) is not None
        gc.collect()
        taken = tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()
    assert known.size <= taken <= 1.1 * known.size
