"""What a series says of its values, compared with the plain list of those that are numbers."""

from __future__ import annotations

import itertools
import math
import statistics
from collections.abc import Sequence
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ray_sentinel.engine.telemetry.series import EVERY, TelemetrySeries
from ray_sentinel.evidence.minority import median_of_others
from ray_sentinel.model.samples import ABSENT, Floats

START = 1_750_000_000.0

VALUES = st.lists(
    st.one_of(
        st.integers(0, 9).map(float), st.just(7.0), st.sampled_from([math.nan, ABSENT, math.inf])
    ),
    max_size=12,
)
GAPS = st.lists(st.integers(4, 9), min_size=14, max_size=14)


class Plain:
    """The same, said simply: pairs of time and value, oldest first."""

    def __init__(self, times: list[float], values: list[float]) -> None:
        pairs = zip(times[len(times) - len(values) :], values, strict=True)
        self.samples = [(at, value) for at, value in pairs if math.isfinite(value)]

    def within(self, now: float, seconds: float) -> list[float]:
        return [value for at, value in self.samples if now - at <= seconds]

    def changes(self, now: float, seconds: float) -> list[tuple[float, float, float]]:
        return [
            (at, before, value)
            for (_, before), (at, value) in pairwise(self.samples)
            if now - at <= seconds
        ]

    def rise(self, now: float, seconds: float) -> float:
        changes = self.changes(now, seconds)
        return sum(value - before if value >= before else value for _, before, value in changes)

    def rose_at(self, now: float, seconds: float) -> float | None:
        rises = (at for at, before, value in self.changes(now, seconds) if value > before)
        return next(rises, None)

    def usual_rate(self, now: float, skip: float) -> float | None:
        older = [(at, value) for at, value in self.samples if now - at > skip]
        if len(older) < 4 or older[-1][0] - older[0][0] < skip:
            return None
        rises = sum(max(0.0, after - before) for (_, before), (_, after) in pairwise(older))
        return rises / (older[-1][0] - older[0][0])


@given(values=VALUES, gaps=GAPS, earlier=st.integers(0, 2), age=st.integers(0, 70))
def test_a_series_says_the_same_as_the_list_of_its_numbers(
    values: list[float], gaps: list[int], earlier: int, age: int
) -> None:
    values = [ABSENT] * earlier + values
    times = [START + gap for gap in itertools.accumulate(gaps[: len(values)])]
    block = Floats(itertools.chain.from_iterable(zip(values, reversed(values), strict=True)))
    series, plain = TelemetrySeries(Floats(times), block, -2, 2), Plain(times, values)
    now, seconds = START + 60.0, float(age)
    assert series.samples == plain.samples == list(series.newest_first())[::-1]
    found = plain.within(now, seconds)
    assert series.within(now, seconds) == found
    assert series.level(now, seconds) == (statistics.median(found) if len(found) >= 4 else None)
    for name in ("rise", "rose_at", "usual_rate"):
        assert getattr(series, name)(now, seconds) == getattr(plain, name)(now, seconds), name
    if not plain.samples:
        assert (series.at, series.since) == (-math.inf, math.inf)
        assert math.isnan(series.last)
        return
    (since, _), (at, last) = plain.samples[0], plain.samples[-1]
    assert (series.since, series.at, series.last) == (since, at, last)
    whole = since < at and now - at <= seconds and now - since >= seconds - EVERY
    assert series.covers(now, seconds) == whole


class Counted(Sequence[float]):
    """Numbers that count how often one of them is read."""

    def __init__(self, values: list[float]) -> None:
        self.values, self.reads = values, 0

    def __len__(self) -> int:
        return len(self.values)

    def __getitem__(self, place: int) -> float:  # type: ignore[override]
        self.reads += 1
        return self.values[place]


@given(st.lists(st.integers(0, 9).map(float), min_size=2))
def test_the_median_of_the_others_is_that_of_the_list_without_one(values: list[float]) -> None:
    ordered = sorted(values)
    for place, value in enumerate(values):
        others = statistics.median(values[:place] + values[place + 1 :])
        assert median_of_others(ordered, value) == others


@pytest.mark.parametrize("count", [1000, 100_000])
def test_the_median_of_the_others_of_a_large_job_reads_hardly_any_of_them(count: int) -> None:
    ordered = Counted([float(number) for number in range(count)])
    assert median_of_others(ordered, 0.0) == count / 2
    assert ordered.reads <= 2 + math.ceil(math.log2(count)) + 1
