"""Transformers' saved trainer states."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from ray_sentinel.diagnose.logs import Total
from ray_sentinel.store.joblogs import MOST_FILES, NAME, read_logs, saved_totals


def put(folder: Path, data: object) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / NAME).write_text(data if isinstance(data, str) else json.dumps(data))


def state(step: float, end: float) -> dict[str, object]:
    return {"epoch": 1.5, "global_step": step, "max_steps": end, "num_train_epochs": 3,
            "log_history": [{"loss": 1.0, "step": 10}]}  # fmt: skip


def test_states_of_checkpoints_tell_the_end(tmp_path: Path) -> None:
    put(tmp_path / "out" / "checkpoint-500", state(500, 1500))
    put(tmp_path / "out" / "checkpoint-1000", state(1000, 1500))
    assert set(saved_totals(tmp_path)) == {
        Total(1500, 500, saved=True),
        Total(1500, 1000, saved=True),
    }
    assert set(read_logs(tmp_path).totals) == set(saved_totals(tmp_path))


@pytest.mark.parametrize(
    "data",
    ["", "{", "[]", "\x00", {"max_steps": 10}, state(0, -1), state(20, 10), state(1, 1e300),
     {"max_steps": "ten", "global_step": 1}],
)  # fmt: skip
def test_damaged_ones_tell_nothing(tmp_path: Path, data: object) -> None:
    put(tmp_path / "checkpoint-5", data)
    assert saved_totals(tmp_path) == ()


def test_of_many_the_latest_are_read(tmp_path: Path) -> None:
    for step in range(1, 101):
        put(tmp_path / f"checkpoint-{step}", state(step, 200))
    totals = saved_totals(tmp_path)
    assert (len(totals), min(one.step for one in totals)) == (MOST_FILES, 101 - MOST_FILES)
    (tmp_path / "checkpoint-x").mkdir()
    assert saved_totals(tmp_path / "nowhere") == ()
