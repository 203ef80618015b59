"""Folders of event files as the frameworks lay them out: what is one run and what is not."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tensorboard.compat.proto.event_pb2 import Event
from tensorboard.compat.proto.summary_pb2 import Summary

from ray_sentinel.cli.main import main
from ray_sentinel.diagnose.series import Selector
from ray_sentinel.diagnose.view import View
from ray_sentinel.store.event_files.source import EventFilesSource, find_event_files, load_events
from ray_sentinel.store.open import open_source
from tests.support.event_files import framed

BEGIN = 1.7e9


def put(folder: Path, steps: range, loss: float, begin: float = 0.0, tag: str = "loss") -> Path:
    """One event file with a value every ten seconds from ``begin`` seconds on."""
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / f"events.out.tfevents.{BEGIN + begin:.0f}.host.{len(list(folder.iterdir()))}"
    parts = []
    for place, step in enumerate(steps):
        summary = Summary(value=[Summary.Value(tag=tag, simple_value=loss)])
        proto = Event(wall_time=BEGIN + begin + 10 * place, step=step, summary=summary)
        parts.append(framed(bytes(proto.SerializeToString())))
    file.write_bytes(b"".join(parts))
    return file


def load(folder: Path) -> EventFilesSource:
    return load_events(find_event_files(folder))


def losses(source: EventFilesSource, name: str = "tb_loss") -> list[set[float]]:
    return [set(one.values.tolist()) for one in source.samples(Selector(name), 0, 2e9)]


def steps(source: EventFilesSource) -> list[tuple[float, float, int]]:
    found = source.samples(Selector("tb_step"), 0, 2e9)
    return [(one.values.min(), one.values.max(), one.values.size) for one in found]


def test_of_different_runs_the_newest_is_taken_and_the_others_are_named(tmp_path: Path) -> None:
    put(tmp_path / "runs" / "exp2", range(80), 3.0, begin=0)
    put(tmp_path / "runs" / "exp1", range(50), 2.0, begin=100)
    source = load(tmp_path)
    assert losses(source) == [{2.0}]
    assert source.notes == [
        f"{tmp_path}/runs holds 2 training runs: exp1, the newest, is taken; left out: exp2 "
        f"(steps 0 to 79). To take another one: --run exp2"
    ]
    with open_source(str(tmp_path / "runs" / "exp2")) as opened:
        assert opened.source.samples(Selector("tb_loss"), 0, 2e9)[0].values.max() == 3.0


def test_a_run_beside_other_runs_folders_is_named_by_its_file(tmp_path: Path) -> None:
    file = put(tmp_path, range(50), 3.0)
    put(tmp_path / "exp", range(50), 2.0, begin=5000)
    assert load(tmp_path).notes[0].endswith(f"To take another one: --run {tmp_path}")
    assert losses(load_events(find_event_files(tmp_path), run=str(tmp_path))) == [{3.0}]
    with open_source(str(file)) as opened:
        assert opened.source.samples(Selector("tb_loss"), 0, 2e9)[0].values.max() == 3.0


@pytest.mark.parametrize(
    "names", [("rank0", "rank_1"), ("worker-3", "worker-4"), ("a.rank1", "a.rank7")]
)
def test_ranks_are_one_run_and_the_lowest_is_taken(tmp_path: Path, names: tuple[str, ...]) -> None:
    put(tmp_path / names[0], range(100), 2.0)
    put(tmp_path / names[1], range(40), 8.0, begin=1)
    source = load(tmp_path)
    assert (losses(source), steps(source)) == ([{2.0}], [(0.0, 99.0, 100)])
    assert "2 ranks wrote event files" in source.notes[0]


@pytest.mark.parametrize(("second", "begin"), [("rank_32", 0), ("rank_9", 5000)])
def test_what_is_only_named_as_a_rank_is_a_run(tmp_path: Path, second: str, begin: float) -> None:
    put(tmp_path / "rank_8", range(100), 2.0)
    put(tmp_path / second, range(40), 8.0, begin=begin + 1)
    assert losses(load(tmp_path)) == [{8.0}]
    assert "left out: rank_8" in load(tmp_path).notes[0]


def test_attempts_in_folders_of_their_own_are_one_run(tmp_path: Path) -> None:
    put(tmp_path / "attempt_0", range(100), 3.0)
    put(tmp_path / "attempt_1", range(60, 120), 2.0, begin=5000)
    assert losses(load(tmp_path)) == [{3.0, 2.0}]
    assert load(tmp_path).notes == []


def test_a_restored_run_goes_on_from_the_one_before(tmp_path: Path) -> None:
    logs = tmp_path / "lightning_logs"
    put(logs / "version_0", range(9, 500, 10), 3.0)
    put(logs / "version_1", range(409, 900, 10), 2.0, begin=5000)
    source = load(tmp_path)
    assert losses(source) == [{3.0, 2.0}]
    assert source.notes == [
        "version_1 goes on from steps that version_0 had done: they are one run that was "
        "started again"
    ]


def test_a_run_from_the_beginning_is_another_one(tmp_path: Path) -> None:
    for place, loss in enumerate((3.0, 2.0)):
        folder = tmp_path / "runs" / f"Nov2{place}_03-00-00_host"
        put(folder, range(10, 500, 10), loss, begin=5000 * place)
    assert losses(load(tmp_path)) == [{2.0}]


def test_ranks_that_share_a_folder_are_not_mixed(tmp_path: Path) -> None:
    put(tmp_path, range(100), 2.0)
    put(tmp_path, range(90), 8.0, begin=1)
    source = load(tmp_path)
    assert (losses(source), steps(source)) == ([{2.0}], [(0.0, 99.0, 100)])
    assert "written at the same time" in source.notes[0]


def test_a_later_file_of_one_folder_is_the_next_attempt(tmp_path: Path) -> None:
    put(tmp_path, range(100), 3.0)
    put(tmp_path, range(60, 120), 2.0, begin=2000)
    source = load(tmp_path)
    assert (losses(source), steps(source)) == ([{2.0, 3.0}], [(0.0, 119.0, 160)])


def test_evaluations_of_the_chosen_run_only_are_kept(tmp_path: Path) -> None:
    for run, begin in (("exp1", 0), ("exp2", 5000)):
        put(tmp_path / run / "train", range(100), 2.0, begin=begin)
        put(tmp_path / run / "validation", range(0, 100, 10), 5.0, begin=begin)
    source = load(tmp_path)
    found = {one.labels["run"] for one in source.samples(Selector("tb_loss"), 0, 2e9)}
    assert found == {"exp2/train", "exp2/validation"}
    span = source.span()
    assert span is not None
    assert len(View(source, *span).panel("train.loss").rows) == 1


def test_curves_in_folders_below_a_run_belong_to_it(tmp_path: Path) -> None:
    put(tmp_path, range(100), 2.0)
    put(tmp_path / "loss_smooth", range(100), 9.0, begin=1)
    put(tmp_path / "extra", range(100), 4.0, begin=1, tag="extra")
    source = load(tmp_path)
    assert (losses(source), losses(source, "tb_extra")) == ([{2.0}], [{4.0}])
    assert source.notes == []


def test_compare_says_what_it_left_out(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    put(tmp_path / "a" / "exp1", range(100), 9.0)
    put(tmp_path / "a" / "exp2", range(100), 2.0, begin=2000)
    put(tmp_path / "b", range(100), 2.0)
    assert main(["compare", str(tmp_path / "a"), str(tmp_path / "b"), "--json"]) == 0
    (found,) = json.loads(capsys.readouterr().out)["comparisons"]
    loss = next(delta for delta in found["deltas"] if delta["title"] == "loss")
    assert (loss["first"], loss["second"]) == (2.0, 2.0)
    assert any("To take another one: --run exp1" in note for note in found["notes"])


@pytest.mark.parametrize(
    ("tag", "key"),
    [
        ("learning/loss", "train.loss"),
        ("train/loss", "train.loss"),
        ("train_loss_step", "train.loss"),
        ("epoch_loss", "train.loss"),
        ("lm loss", "train.loss"),
        ("reduced_train_loss", "train.loss"),
        ("loss_metrics/global_avg_loss", "train.loss"),
        ("Train/Samples/train_loss", "train.loss"),
        ("iteration-time", "train.step_time"),
        ("train_step_timing in s", "train.step_time"),
        ("time_metrics/end_to_end(s)", "train.step_time"),
        ("timing_s/step", "train.step_time"),
        ("throughput(tps)", "train.throughput"),
        ("tokens_per_second_per_gpu", "train.throughput"),
    ],
)
def test_the_tags_of_frameworks_are_known(tmp_path: Path, tag: str, key: str) -> None:
    put(tmp_path, range(20), 3.0, tag=tag)
    source = load(tmp_path)
    span = source.span()
    assert span is not None
    panel = View(source, *span).panel(key)
    assert (len(panel.rows), set(panel.values[0].tolist()) - {3.0}) == (1, set())
