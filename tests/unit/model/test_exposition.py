"""Rendering, against golden files. ``UPDATE_GOLDEN=1 pytest ...`` writes them anew."""

from __future__ import annotations

import gc
import math
import os
import subprocess
import weakref
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.openmetrics.parser import (
    text_string_to_metric_families as parse_openmetrics,
)
from prometheus_client.parser import text_string_to_metric_families as parse_text

from ray_sentinel.model.exposition import Renderer, escape, label_name, number
from ray_sentinel.model.metrics import Family, Metric, Sample
from tests.support.parts import require

GOLDEN = Path(__file__).parents[2] / "fixtures/exposition"

TEMPERATURE = Metric("hw_gpu_temperature_celsius", "gauge", "GPU temperature.", ("gpu",))
BYTES = Metric("hw_net_rx_bytes_total", "counter", "Bytes received.", ("device",))
INFO = Metric("hw_gpu_info", "info", "What the GPU is.", ("gpu", "name"))
OTHER = Metric("my_value", "untyped", "Of a plugin.")
PRESSURE = Metric("hw_io_pressure_full_total_us", "counter", "A counter without _total at its end.")
LOSS = Metric("tb_loss", "gauge", "Loss.", ("run",))

FAMILIES = (
    Family(TEMPERATURE, (TEMPERATURE(61.0, "0"), TEMPERATURE(math.nan, "1"))),
    Family(BYTES, (BYTES(4294967296.0, "eth0"), BYTES(1.8446744073709552e19, 'we"ird\\\nname'))),
    Family(INFO, (INFO(1.0, "0", "NVIDIA H100 — 80 GB"),)),
    Family(OTHER, (OTHER(math.inf),)),
    Family(PRESSURE, (PRESSURE(2969640.0),)),
    Family(LOSS, (LOSS(0.5, "a", timestamp=1700000000.25), LOSS(0.25, "a"))),
)


@pytest.mark.parametrize(
    ("name", "openmetrics", "history"),
    [
        ("now.prom", False, False),
        ("now.om", True, False),
        ("steps.prom", False, True),
        ("steps.om", True, True),
    ],
)
def test_golden(name: str, openmetrics: bool, history: bool) -> None:
    rendered = Renderer("node1", openmetrics=openmetrics, history=history).render(FAMILIES)
    file = GOLDEN / name
    if os.environ.get("UPDATE_GOLDEN"):
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(rendered)
    assert rendered.decode() == file.read_text()


def test_openmetrics_is_read_by_the_reference_parser() -> None:
    families = {
        family.name: family for family in parse_openmetrics((GOLDEN / "now.om").read_text())
    }
    assert families["hw_net_rx_bytes"].type == "counter"
    assert families["hw_gpu"].type == "info"
    assert families["hw_io_pressure_full_total_us"].type == "unknown"
    list(parse_openmetrics((GOLDEN / "steps.om").read_text()))


def test_promtool_has_only_the_complaints_that_the_catalog_excuses() -> None:
    done = subprocess.run(
        [require("promtool"), "check", "metrics"],
        input=(GOLDEN / "now.prom").read_bytes(),
        capture_output=True,
        timeout=30,
        check=False,
    )
    complaints = done.stderr.decode().splitlines() + done.stdout.decode().splitlines()
    assert [line for line in complaints if "hw_io_pressure_full_total_us" not in line] == []


class CountedSamples(tuple[Sample, ...]):
    """Counts how often they are gone through."""

    rounds = 0

    def __iter__(self) -> Iterator[Sample]:
        self.rounds += 1
        return super().__iter__()


def test_a_family_that_did_not_change_is_not_rendered_again() -> None:
    renderer, samples = Renderer("h"), CountedSamples(FAMILIES[1].samples)
    rest = (Family(BYTES, samples), *FAMILIES[2:])
    first = renderer.render((FAMILIES[0], *rest))
    rounds = samples.rounds
    assert rounds > 0
    second = renderer.render((Family(TEMPERATURE, (TEMPERATURE(62.0, "0"),)), *rest))
    assert samples.rounds == rounds
    assert first != second
    assert b" 62.0\n" in second
    assert b'hw_net_rx_bytes_total{host="h",device="eth0"} 4294967296.0\n' in second


class Name(str):
    """One that tells whether anybody still holds it."""


def test_series_that_go_leave_nothing_behind() -> None:
    renderer = Renderer("h")
    devices = [Name(number) for number in range(100)]
    metric = Metric(Name("hw_net_rx_bytes_total"), "counter", "Bytes received.", ("device",))
    held = weakref.WeakSet((*devices, metric.name))
    renderer.render([Family(metric, tuple(metric(1, device) for device in devices))])
    two = [Family(metric, (metric(2, devices[7]), metric(3, Name(200))))]
    held.add(two[0].samples[1].labels[0][1])
    text = renderer.render(two).decode()
    assert text.count("\nhw_net") == 2
    del devices, two
    gc.collect()
    assert sorted(held) == ["200", "7", metric.name]
    assert renderer.render([]) == b""
    del metric
    gc.collect()
    assert not held


def test_families_of_one_name_are_merged_and_their_double_series_dropped() -> None:
    one, two = Family(BYTES, (BYTES(1, "a"),)), Family(BYTES, (BYTES(9, "a"), BYTES(2, "b")))
    text = Renderer("h").render([one, FAMILIES[0], two]).decode()
    assert text.count("# TYPE hw_net_rx_bytes_total") == 1
    assert 'device="a"} 1\n' in text
    assert 'device="a"} 9\n' not in text
    assert 'device="b"} 2\n' in text


def test_families_whose_openmetrics_names_collide() -> None:
    gauge = Metric("hw_errors", "gauge", "")
    counter = Metric("hw_errors_total", "counter", "")
    families = [Family(gauge, (gauge(1),)), Family(counter, (counter(2),))]
    parsed = parse_openmetrics(Renderer("h", openmetrics=True).render(families).decode())
    assert {family.name: family.type for family in parsed} == {
        "hw_errors": "gauge",
        "hw_errors_total": "unknown",
    }


def test_an_ill_named_family_is_left_out() -> None:
    bad = Metric("a b", "gauge", "")
    assert Renderer("h").render([Family(bad, (Sample("a b", (), 1.0),))]) == b""


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (1.0, "1.0"),
        (True, "1.0"),
        (math.nan, "NaN"),
        (-math.inf, "-Inf"),
        (2**63, "9.223372036854776e+18"),
    ],
)
def test_number(value: float, text: str) -> None:
    assert number(value) == text


@pytest.mark.parametrize(
    ("name", "served"),
    [
        ("gpu", "gpu"),
        ("host", "exported_host"),
        ("a b", "a_b"),
        ("9", "_9"),
        ("__name__", "name__"),
        ("", "label"),
        ("é", "label"),
    ],
)
def test_label_name(name: str, served: str) -> None:
    assert label_name(name) == served


@given(st.text(), st.text(), st.floats())
def test_any_label_value_comes_back_as_it_was(value: str, host: str, number_: float) -> None:
    family = Family(BYTES, (BYTES(number_, value),))
    text = Renderer(host).render([family]).decode()
    lines = [line for line in text.split("\n") if line and not line.startswith("#")]
    assert len(lines) == 1
    if "\x85" not in value + host and not set("\r\x0b\x0c\x1c\x1d\x1e\u2028\u2029") & set(
        value + host
    ):
        # The reference parser splits lines in more places than the format does.
        sample = next(iter(parse_text(lines[0]))).samples[0]
        assert sample.labels["device"] == value
        assert sample.value == number_ or math.isnan(number_)


@given(st.text(st.characters(codec=None, categories=["Cs", "L"])))
def test_lone_surrogates_become_escapes(value: str) -> None:
    Renderer(value).render([Family(BYTES, (BYTES(1.0, value),))]).decode()
    assert "\n" not in escape(value)
