"""Frames in pieces of any size, and what is none of ours."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ray_sentinel.collect.protocol import (
    MAX_FRAME,
    Ask,
    CollectorSource,
    FrameError,
    Frames,
    FromChild,
    Hello,
    Roots,
    RunAnswer,
    Setup,
    ToChild,
    encode,
)
from ray_sentinel.model.metrics import Family, Metric

LOAD = Metric("hw_load1", "gauge", "Load.")
ANSWER = RunAnswer(sequence=3, outcome="ok", families=(Family(LOAD, (LOAD(1.5),)),))


@given(st.lists(st.integers(1, 50), max_size=20))
def test_any_cut_gives_the_same_messages(cuts: list[int]) -> None:
    data = encode(ANSWER) + encode(Hello(interval=1, deadline=2))
    frames: Frames[FromChild] = Frames(FromChild)
    got: list[FromChild] = []
    for cut in [*cuts, len(data)]:
        got += frames.feed(data[:cut])
        data = data[cut:]
    assert got == [ANSWER, Hello(interval=1, deadline=2)]


def test_paths_and_options_survive() -> None:
    source = CollectorSource(name="a", kind="script", target="/x")
    setup = Setup(
        source=source, host="h", roots=Roots(proc=Path("/captured")), options={"a": [1, "b"]}
    )
    frames: Frames[ToChild] = Frames(ToChild)
    assert list(frames.feed(encode(setup))) == [setup]


@pytest.mark.parametrize(
    "data",
    [
        (MAX_FRAME + 1).to_bytes(4, "big"),
        b"\0\0\0\1\xc1",
        b"\0\0\0\1\x01",
        encode(Ask(sequence=1, deadline=1.0)),
        b"Traceback (most recent call last)",
    ],
)
def test_what_is_none_of_ours_is_refused(data: bytes) -> None:
    with pytest.raises(FrameError):
        list(Frames[FromChild](FromChild).feed(data))
