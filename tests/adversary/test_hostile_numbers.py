"""Records from anybody whose numbers are none, or too large: each reader says what is wrong."""

from __future__ import annotations

import json
import struct
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ray_sentinel.cli.rank_table import rank_table
from ray_sentinel.errors import InputError
from ray_sentinel.store.incident_window import incident_window
from ray_sentinel.store.prometheus.tsdb import inspect
from ray_sentinel.supervise.loadable import problem_of

NUMBERS = ("1e999", "-1e999", "NaN", "9" * 400, '"' + "9" * 5000 + '"', "[]", "{}", "null", "true")
"""As JSON; ``json`` reads the first three as infinite, or as no number."""


def checkpoint(folder: Path, number: str) -> str:
    header = f'{{"a": {{"data_offsets": [0, {number}]}}}}'.encode()
    file = folder / "model.safetensors"
    file.write_bytes(struct.pack("<Q", len(header)) + header + bytes(8))
    return problem_of(folder)


def block(folder: Path, number: str) -> str:
    made = folder / "01HZZZZZZZZZZZZZZZZZZZZZZZ"
    made.mkdir()
    (made / "meta.json").write_text(
        f'{{"minTime": {number}, "maxTime": {number}, "stats": {{"numSeries": {number}}}}}'
    )
    return "; ".join(inspect(folder).broken)


def ranks(folder: Path, number: str) -> str:
    (folder / "ranks.json").write_text(f'[{{"host": "a", "pid": {number}, "rank": {number}}}]')
    return refused(lambda: rank_table(folder / "ranks.json"))


def window(folder: Path, number: str) -> str:
    made = folder / "incidents" / "0001"
    made.mkdir(parents=True)
    (made / "incident.json").write_text(f'{{"id": "0001", "suspected_at": {number}}}')
    return refused(lambda: incident_window(folder, "0001"))


def refused(read: Callable[[], Any]) -> str:
    with pytest.raises(InputError) as told:
        read()
    return str(told.value)


@pytest.mark.parametrize("number", NUMBERS, ids=lambda text: text[:8])
@pytest.mark.parametrize("read", [checkpoint, block, ranks, window])
def test_a_number_that_is_none_is_said(
    read: Callable[[Path, str], str], number: str, tmp_path: Path
) -> None:
    assert read(tmp_path, number)


def test_a_header_of_many_things_takes_little_memory(tmp_path: Path) -> None:
    """A checkpoint is read by the supervisor itself."""
    header = json.dumps({"__metadata__": {"a": [[]] * 500_000}}).encode()
    (tmp_path / "a.safetensors").write_bytes(struct.pack("<Q", len(header)) + header)
    tracemalloc.start()
    try:
        assert problem_of(tmp_path) == ""
        assert tracemalloc.get_traced_memory()[1] < 4 * len(header)
    finally:
        tracemalloc.stop()
