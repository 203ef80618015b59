"""What a collector yields, however hostile, becomes something that can be served."""

from __future__ import annotations

import sys
from typing import Any

import pytest

from ray_sentinel.api import Event, Family, Metric, Sample
from ray_sentinel.collect.gather import Gathering, declared
from ray_sentinel.collect.protocol import OutputLimits

LOAD = Metric("hw_load1", "gauge", "Load.")
ERRORS = Metric("hw_errors_total", "counter", "Errors.", ("device",))
IN_A_TABLE = {"bytes": Metric("hw_bytes_total", "counter", "Bytes.")}


def gather(*items: Any, limits: OutputLimits | None = None) -> tuple[Gathering, list[Event]]:
    events: list[Event] = []
    metrics = {metric.name: metric for metric in (LOAD, ERRORS)}
    gathering = Gathering(metrics, limits or OutputLimits(), events.append)
    gathering.add_all(iter(items))
    return gathering, events


def test_samples_are_put_into_their_families() -> None:
    gathering, _ = gather(LOAD(1.5), ERRORS(1, "a"), ERRORS(2, "b"))
    assert {family.metric.name: len(family.samples) for family in gathering.families()} == {
        "hw_load1": 1,
        "hw_errors_total": 2,
    }
    assert gathering.problems == []


def test_an_undeclared_sample_is_told_and_left_out() -> None:
    gathering, _ = gather(Sample("hw_other", (), 1.0), LOAD(1.0))
    assert [family.metric.name for family in gathering.families()] == ["hw_load1"]
    assert "hw_other" in gathering.problems[0]


def test_a_family_brings_its_own_metric() -> None:
    metric = Metric("tb_loss", "gauge", "Loss.")
    gathering, _ = gather(Family(metric, (metric(0.5),)))
    assert gathering.families()[0].samples[0].value == 0.5


def test_a_million_series_are_bounded_and_the_rest_is_never_asked_for() -> None:
    asked = 0

    def endless() -> Any:
        nonlocal asked
        while True:
            asked += 1
            yield ERRORS(1, str(asked))

    gathering = Gathering({ERRORS.name: ERRORS}, OutputLimits(series=100), lambda event: None)
    gathering.add_all(endless())
    assert asked == 100
    assert len(gathering.families()[0].samples) == 100
    assert "100 series" in gathering.problems[0]


def test_a_family_of_a_million_samples_is_bounded() -> None:
    metric = Metric("tb_x", "gauge", "X.", ("i",))
    big = Family(metric, tuple(metric(1, str(i)) for i in range(1000)))
    gathering, _ = gather(big, LOAD(1.0), limits=OutputLimits(series=10))
    assert len(gathering.families()[0].samples) == 10


def test_history_counts_as_samples_not_as_series() -> None:
    samples = [LOAD(i, timestamp=float(i)) for i in range(50)]
    gathering, _ = gather(*samples, limits=OutputLimits(series=10, samples=40))
    assert len(gathering.families()[0].samples) == 40


@pytest.mark.parametrize("value", [None, "12", "x", [], object()])
def test_only_numbers_are_values(value: Any) -> None:
    gathering, _ = gather(Sample("hw_load1", (), value))
    if value == "12":
        assert gathering.families()[0].samples[0].value == 12.0
    else:
        assert gathering.families() == ()
        assert "is not a number" in gathering.problems[0]


def test_labels_are_text_utf8_and_bounded() -> None:
    gathering, _ = gather(
        ERRORS(1, "x" * 10_000),
        ERRORS(2, "caf\udce9"),
        Sample("hw_errors_total", (("device", 3),), 3.0),  # type: ignore[arg-type]
    )
    values = [dict(sample.labels)["device"] for sample in gathering.families()[0].samples]
    assert len(values[0]) == 512
    assert values[1] == "caf\\udce9"
    assert values[2] == "3"
    for value in values:
        value.encode()


def test_the_host_label_is_ours() -> None:
    gathering, _ = gather(Sample("hw_errors_total", (("host", "other"),), 1.0))
    assert gathering.families()[0].samples[0].labels == (("exported_host", "other"),)
    assert "exported_host" in gathering.problems[0]


@pytest.mark.parametrize("name", ["", "9x", "a b", "a\n", 'a{b="c"}', "é"])
def test_a_name_that_no_parser_would_take_is_left_out(name: str) -> None:
    metric = Metric(name, "gauge", "")
    gathering, _ = gather(Family(metric, (Sample(name, (), 1.0),)))
    assert gathering.families() == ()
    assert len(gathering.problems) == 1


def test_a_kind_that_is_none_is_told() -> None:
    metric = Metric("hw_x", "histogram", "")  # type: ignore[arg-type]
    gathering, _ = gather(Family(metric, (metric(1),)))
    assert gathering.families() == ()
    assert "histogram" in gathering.problems[0]


def test_the_same_series_twice_is_told_and_the_first_is_taken() -> None:
    gathering, _ = gather(ERRORS(1, "a"), ERRORS(2, "a"))
    assert [sample.value for sample in gathering.families()[0].samples] == [1.0]
    assert "twice" in gathering.problems[0]


@pytest.mark.parametrize("thing", [None, 1, "hw_load1 1", object(), LOAD])
def test_other_things_are_told(thing: Any) -> None:
    gathering, _ = gather(thing, LOAD(1.0))
    assert len(gathering.families()) == 1
    assert len(gathering.problems) == 1


def test_problems_are_told_once_each_and_bounded() -> None:
    gathering, _ = gather(*[Sample(f"hw_{i % 50}", (), 1.0) for i in range(1000)])
    assert len(gathering.problems) == OutputLimits().problems


def test_events_are_passed_on_at_once_bounded_and_cleaned() -> None:
    event = Event(time=1.0, kind="kernel.xid", message="x\udcff" * 10_000, attributes={"a": "b"})
    gathering, events = gather(event, event, event, limits=OutputLimits(events=2))
    assert len(events) == 2
    events[0].message.encode()
    assert len(events[0].message) <= 4000
    assert "events" in gathering.problems[0]


def test_an_event_of_wrong_kinds_is_told_and_costs_nothing_else() -> None:
    wrong = Event(time="soon", kind="a", message="b")  # type: ignore[arg-type]
    worse = Event(time=1.0, kind="a", message="b", severity="bad")  # type: ignore[arg-type]
    gathering, events = gather(wrong, worse, LOAD(1.0))
    assert events == []
    assert len(gathering.families()) == 1
    assert len(gathering.problems) == 2


def test_metrics_at_the_top_of_a_module_count_as_declared() -> None:
    found = declared((), sys.modules[__name__])
    assert {"hw_load1", "hw_errors_total", "hw_bytes_total"} <= found.keys()
