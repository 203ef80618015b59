"""Event files written by the real writers, and torn ones."""

from __future__ import annotations

import gzip
import random
import struct
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from ray_sentinel.diagnose.series import Selector
from ray_sentinel.diagnose.view import View
from ray_sentinel.errors import InputError
from ray_sentinel.evidence.event_files.records import MAX_RECORD, masked
from ray_sentinel.store.event_files.memory import MemorySource
from ray_sentinel.store.event_files.records import CHUNK, read_events
from ray_sentinel.store.event_files.source import find_event_files, load_events, with_events
from ray_sentinel.store.open import open_source
from tests.support.event_files import event, framed
from tests.support.parts import require_module


def read_scalars(
    file: Path, notes: list[str] | None = None
) -> Iterator[tuple[float, int, str, float]]:
    for found in read_events(file, notes):
        for scalar in found.scalars:
            yield found.wall_time, found.step, scalar.tag, scalar.value


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
    assert notes == [f"{file.name} is damaged in 1 places; the records there are left out"]
    assert {tag for _, _, tag, _ in found} == {"learning/loss", "perf/step_time_seconds"}


def test_a_damaged_length_loses_its_record_only(tmp_path: Path) -> None:
    file = written(tmp_path)
    whole = bytearray(file.read_bytes())
    count = len(list(read_scalars(file)))
    (length,) = struct.unpack_from("<Q", whole)
    whole[16 + length] ^= 1
    file.write_bytes(whole)
    notes: list[str] = []
    assert len(list(read_scalars(file, notes))) == count - 1
    assert notes == [f"{file.name} is damaged in 1 places; the records there are left out"]


def test_a_torn_record_between_good_ones_is_passed_over(tmp_path: Path) -> None:
    file = tmp_path / "events.out.tfevents.1.a"
    parts = [framed(event(step)) for step in range(5)]
    file.write_bytes(b"".join([*parts[:2], parts[2][:17], *parts[3:]]))
    assert [step for _, step, _, _ in read_scalars(file)] == [0, 1, 3, 4]


def test_a_torn_record_that_claims_more_than_the_file_holds_is_passed_over(tmp_path: Path) -> None:
    file = tmp_path / "events.out.tfevents.1.a"
    long = framed(event(1) + b"\xfa\x01" + b"\xa0\x8d\x06" + bytes(100_000))
    file.write_bytes(framed(event(0)) + long[:500] + framed(event(2)) + framed(event(3)))
    notes: list[str] = []
    assert [step for _, step, _, _ in read_scalars(file, notes)] == [0, 2, 3]
    assert notes == [f"{file.name} is damaged in 1 places; the records there are left out"]


def test_junk_over_several_chunks_is_said_once(tmp_path: Path) -> None:
    file = tmp_path / "events.out.tfevents.1.a"
    file.write_bytes(framed(event(1)) + b"\xaa" * (2 * CHUNK + 5) + framed(event(2)))
    notes: list[str] = []
    assert [step for _, step, _, _ in read_scalars(file, notes)] == [1, 2]
    assert notes == [f"{file.name} is damaged in 1 places; the records there are left out"]


def test_records_longer_than_a_chunk_are_read_and_huge_ones_passed_over(tmp_path: Path) -> None:
    file = tmp_path / "events.out.tfevents.1.a"
    long = event(2) + b"\xfa\x01" + b"\x80\x80\x80\x04" + bytes(1 << 23)
    length = struct.pack("<Q", MAX_RECORD + 1)
    with file.open("wb") as sparse:
        sparse.write(framed(event(1)) + framed(long) + length + struct.pack("<I", masked(length)))
        sparse.seek(MAX_RECORD + 1 + 4, 1)
        sparse.write(framed(event(3)))
    notes: list[str] = []
    assert [step for _, step, _, _ in read_scalars(file, notes)] == [1, 2, 3]
    assert notes == [f"1 records of {file.name} are longer than 64 MiB and were passed over"]


def test_every_cut_is_said(tmp_path: Path) -> None:
    file = tmp_path / "events.out.tfevents.1.a"
    part = framed(event(1))
    for cut in range(1, len(part)):
        file.write_bytes(part + part[:cut])
        notes: list[str] = []
        assert len(list(read_scalars(file, notes))) == 1
        assert notes == [f"{file.name} ends within a record: {cut} bytes of it were left out"]


def test_what_holds_no_record_or_is_gone_is_said(tmp_path: Path) -> None:
    packed = tmp_path / "events.out.tfevents.1.a.gz"
    packed.write_bytes(gzip.compress(framed(event(1)) * 9))
    notes: list[str] = []
    assert not list(read_scalars(packed, notes))
    assert not list(read_scalars(tmp_path / "gone", notes))
    assert not list(read_scalars(tmp_path, notes))
    assert "holds no whole record" in notes[0]
    assert "No such file" in notes[1]
    assert "Is a directory" in notes[2]


def test_runs_are_told_apart_and_names_that_clash_too(tmp_path: Path) -> None:
    for run, tag in (("train", "loss"), ("validation", "loss"), ("validation", "Loss")):
        (tmp_path / run).mkdir(exist_ok=True)
        with (tmp_path / run / "events.out.tfevents.1.a").open("ab") as file:
            file.write(framed(event(3, tag, 0.25)))
    source = load_events(find_event_files(tmp_path))
    found = [one.labels for one in source.samples(Selector("tb_loss"), 0, 2e9)]
    assert found == [
        {"run": "train"},
        {"run": "validation", "tag": "loss"},
        {"run": "validation", "tag": "Loss"},
    ]


def test_the_step_is_that_of_the_tag_written_most_often(tmp_path: Path) -> None:
    file = tmp_path / "events.out.tfevents.1.a"
    parts = [framed(event(step)) for step in range(100, 110)]
    # An evaluation that is counted in epochs.
    parts.insert(5, framed(event(1, "eval/accuracy")))
    file.write_bytes(b"".join(parts))
    (steps,) = load_events([file]).samples(Selector("tb_step"), 0, 2e9)
    assert steps.values.tolist() == list(range(100, 110))


def test_values_without_a_time_are_left_out_and_said(tmp_path: Path) -> None:
    file = tmp_path / "events.out.tfevents.1.a"
    file.write_bytes(framed(event(-1000)) + framed(event(1)))
    source = load_events([file])
    assert len(source.samples(Selector("tb_loss"), -1, 2e9)[0].times) == 1
    assert source.notes == [f"1 events in {tmp_path} have no time; left out"]


def test_a_folder_with_event_files_alone_can_be_opened(tmp_path: Path) -> None:
    written(tmp_path / "tensorboard")
    with open_source(str(tmp_path)) as opened:
        assert "tb_learning_loss" in opened.source.families()
        assert with_events(opened.source, opened.folder) is opened.source
    (tmp_path / "other").mkdir()
    with (
        pytest.raises(InputError, match="not a Prometheus data folder"),
        open_source(str(tmp_path / "other")),
    ):
        pass


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


def test_the_last_step_is_within_the_span(tmp_path: Path) -> None:
    file = tmp_path / "events.out.tfevents.1.a"
    file.write_bytes(b"".join(framed(event(step)) for step in range(0, 100, 7)))
    source = load_events([file])
    span = source.span()
    assert span == (1000.0, 1105.0)
    assert View(source, *span).panel("train.step").values[0, -1] == 98.0


def test_an_evaluation_beside_the_training_is_no_sample_of_its_loss(tmp_path: Path) -> None:
    for run, value in (("train", 1.0), ("validation", 3.0)):
        (tmp_path / run).mkdir()
        parts = [framed(event(step, "loss", value)) for step in range(20)]
        (tmp_path / run / "events.out.tfevents.1.a").write_bytes(b"".join(parts))
    source = load_events(find_event_files(tmp_path))
    panel = View(source, 1000.0, 1020.0).panel("train.loss")
    assert [dict(row.labels) for row in panel.rows] == [{"run": "train"}]


def test_an_evaluation_alone_is_kept(tmp_path: Path) -> None:
    for run in ("eval", "test"):
        (tmp_path / run).mkdir()
        parts = [framed(event(step, "loss", 2.0)) for step in range(20)]
        (tmp_path / run / "events.out.tfevents.1.a").write_bytes(b"".join(parts))
    source = load_events(find_event_files(tmp_path))
    assert len(View(source, 1000.0, 1020.0).panel("train.loss").rows) == 2


def test_why_event_files_alone_say_nothing_is_told(tmp_path: Path) -> None:
    (tmp_path / "events.out.tfevents.1.a.gz").write_bytes(gzip.compress(framed(event(1)) * 9))
    with (
        pytest.raises(InputError, match=r"tfevents.1.a.gz holds no whole record"),
        open_source(str(tmp_path)),
    ):
        pass
