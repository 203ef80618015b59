"""Samples as nodes send them, of series that a test writes as text."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from functools import cache

from ray_sentinel.model.samples import SampleBatch, SampleSender, SeriesKey
from ray_sentinel.store.history.keys import parse_key

_senders = itertools.count()


@cache
def series_key(text: str) -> SeriesKey:
    """The key of ``name{label="value",...}``."""
    name, labels = parse_key(text)
    return SeriesKey(name, tuple(labels.items()))


def sampled(gauges: Mapping[str, float]) -> tuple[SampleBatch, ...]:
    """One whole batch for the rules, of a sender that sends nothing else; none without gauges."""
    if not gauges:
        return ()
    values = {series_key(text): value for text, value in gauges.items()}
    return (SampleSender("rules", f"s{next(_senders)}").batch(values, None, 0.0),)
