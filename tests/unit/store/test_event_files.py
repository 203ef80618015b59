"""Event files written by the real writers, and torn ones."""

from __future__ import annotations

import random
import struct
from pathlib import Path

import numpy as np
import pytest

from ray_sentinel.diagnose.series import Selector
from ray_sentinel.store.event_files import (
    find_event_files,
    load_events,
    metric_of,
    with_events,
)
from ray_sentinel.store.event_records import MAX_BYTES, read_scalars
from ray_sentinel.store.memory import MemorySource
from tests.support.parts import require_module


def written(folder: Path, *, new_style: bool = False, steps: int = 50) -> Path:
    tensorboard = require_module("torch.utils.tensorboard", "torch tensorboard")
    writer = tensorboard.SummaryWriter(str(folder))
    for step in range(steps):
        writer.add_scalar(
            "learning/loss", 2.0 - step / 100, step, walltime=1e9 + step, new_style=new_style
        )
        writer.add_scalar("perf/step_time_seconds", 5.0, step, walltime=1e9 + step)
    writer.add_histogram("weights", np.arange(10.0), 1, walltime=1e9)
    writer.close()
    return next(path for path in folder.iterdir() if "tfevents" in path.name)


@pytest.mark.parametrize("new_style", [False, True])
def test_every_step_is_read(tmp_path: Path, new_style: bool) -> None:
    written(tmp_path / "job" / "tensorboard", new_style=new_style)
    source = load_events(find_event_files(tmp_path / "job"))
    assert source.families() == ("tb_learning_loss", "tb_perf_step_time_seconds", "tb_step")
    loss = source.samples(Selector("tb_learning_loss"), 0, 2e9)[0]
    assert len(loss.values) == 50
    assert loss.values[10] == pytest.approx(1.9)
    assert loss.times[10] == 1e9 + 10


def test_torn_and_random_files_give_what_they_have(tmp_path: Path) -> None:
    whole = written(tmp_path).read_bytes()
    dice = random.Random(1)
    for cut in (0, 3, 11, 12, 40, len(whole) // 2, len(whole) - 1):
        (tmp_path / "cut").write_bytes(whole[:cut])
        assert len(list(read_scalars(tmp_path / "cut"))) <= 100
    for _ in range(50):
        (tmp_path / "noise").write_bytes(dice.randbytes(500))
        assert len(list(read_scalars(tmp_path / "noise"))) <= 100


def test_a_damaged_record_is_left_out_and_said(tmp_path: Path) -> None:
    file = written(tmp_path)
    whole = file.read_bytes()
    count = len(list(read_scalars(file)))
    value = whole.index(b"learning/loss", len(whole) // 2)
    file.write_bytes(whole[:value] + b"X" + whole[value + 1 :])
    notes: list[str] = []
    found = list(read_scalars(file, notes))
    assert len(found) == count - 1
    assert notes == [f"1 records of {file.name} are damaged and were left out"]
    assert {tag for _, _, tag, _ in found} == {"learning/loss", "perf/step_time_seconds"}


def test_a_damaged_length_ends_a_file(tmp_path: Path) -> None:
    file = written(tmp_path)
    whole = bytearray(file.read_bytes())
    (length,) = struct.unpack_from("<Q", whole)
    whole[16 + length] ^= 1
    file.write_bytes(whole)
    notes: list[str] = []
    assert not list(read_scalars(file, notes))
    assert "is damaged at byte" in notes[0]


def test_what_is_too_large_or_gone_is_said(tmp_path: Path) -> None:
    large = tmp_path / "events.out.tfevents.1.a"
    with large.open("wb") as sparse:
        sparse.truncate(MAX_BYTES + 1)
    notes: list[str] = []
    assert not list(read_scalars(large, notes))
    assert not list(read_scalars(tmp_path / "gone", notes))
    assert "larger than 512 MiB" in notes[0]
    assert "No such file" in notes[1]


def test_they_take_the_place_of_gappy_series(tmp_path: Path) -> None:
    written(tmp_path)
    database = MemorySource("tsdb")
    database.add("tb_step", {"host": "a"}, [1e9, 1e9 + 40], [0, 40])
    database.add("hw_load1", {"host": "a"}, [1e9, 1e9 + 60], [1, 1])
    source = with_events(database, tmp_path)
    assert len(source.samples(Selector("tb_step"), 0, 2e9)[0].times) == 50
    assert source.families().count("tb_step") == 1
    assert source.samples(Selector("hw_load1"), 0, 2e9)


def test_another_runs_files_are_left_alone(tmp_path: Path) -> None:
    written(tmp_path)
    database = MemorySource("tsdb")
    database.add("tb_step", {}, [5e8, 5e8 + 60], [1, 2])
    assert with_events(database, tmp_path) is database
    assert with_events(database, None) is database


def test_tags_become_metric_names() -> None:
    assert metric_of("learning/Loss (raw)") == "tb_learning_loss_raw"
