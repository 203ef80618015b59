"""The TensorBoard collector on files of real writers."""

from __future__ import annotations

import contextlib
import math
import os
import socket
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from tensorboard.compat.proto.event_pb2 import Event as EventProto
from tensorboard.compat.proto.summary_pb2 import Summary
from tensorboard.summary.writer.event_file_writer import EventFileWriter
from tensorboard.util import tensor_util

from ray_sentinel.api import Context, Family, NoData, Sample
from ray_sentinel.model.identity import ProcessId, Rank, RankId
from ray_sentinel_plugins import tensorboard
from ray_sentinel_plugins._event_files import run as run_module
from ray_sentinel_plugins._event_files.follow import FileName
from ray_sentinel_plugins._event_files.places import Readership, open_folders
from ray_sentinel_plugins._event_files.run import (
    HOLD_SECONDS,
    LEAST_SECONDS,
    MAX_POINTS,
    OLDEST_SECONDS,
    SETTLED_SECONDS,
    START_SECONDS,
    EventFileRun,
    FileAuthor,
)
from ray_sentinel_plugins.tensorboard import MAX_RUNS, TensorboardCollector


@pytest.fixture(autouse=True)
def _any_time_is_young_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    """The tests' values are of 1970, but where their age is what is tested."""
    monkeypatch.setattr(run_module, "OLDEST_SECONDS", 1e11)


def add(
    writer: EventFileWriter,
    step: int,
    moment: float = 0.0,
    /,
    *,
    tensor: bool = False,
    **tags: float,
) -> None:
    """One event with these tags; ``__`` stands for a slash."""
    values = [
        Summary.Value(tag=tag.replace("__", "/"), tensor=tensor_util.make_tensor_proto(value))
        if tensor
        else Summary.Value(tag=tag.replace("__", "/"), simple_value=value)
        for tag, value in tags.items()
    ]
    when = moment or 1000.0 + step
    writer.add_event(EventProto(wall_time=when, step=step, summary=Summary(value=values)))
    writer.flush()


class Reader:
    """Collects with one collector, and sorts what it yields."""

    def __init__(self, folder: Path | str, tmp_path: Path, **options: object) -> None:
        fields = {"folder": str(folder), "history": True, **options}
        self.context = Context(
            proc=tmp_path / "proc",
            options=TensorboardCollector.Options(**fields),
            live=False,
        )
        self.collector = TensorboardCollector(self.context)

    def samples(self) -> list[Sample]:
        self.collector.search()
        families = list(self.collector.collect())
        assert all(isinstance(family, Family) for family in families)
        return [sample for family in families for sample in family.samples]

    def gauges(self) -> dict[str, float]:
        found = {}
        for sample in self.samples():
            if sample.timestamp is None:
                labels = ",".join(f"{key}={value}" for key, value in sample.labels)
                found[f"{sample.name}{{{labels}}}" if labels else sample.name] = sample.value
        return found

    def history(self) -> list[tuple[str, str, float, float | None]]:
        return [
            (s.name, dict(s.labels)["attempt"], s.timestamp or 0.0, s.value)
            for s in self.samples()
            if s.timestamp is not None
        ]


@pytest.fixture
def reader(tmp_path: Path) -> Callable[..., Reader]:
    return lambda folder=None, **options: Reader(folder or tmp_path / "tb", tmp_path, **options)


@pytest.fixture
def writer(tmp_path: Path) -> EventFileWriter:
    return EventFileWriter(str(tmp_path / "tb"))


def test_gauges_of_both_forms(writer: EventFileWriter, reader: Callable[..., Reader]) -> None:
    add(writer, 4, learning__loss=0.5)
    add(writer, 4, tensor=True, perf__step_time_seconds=2.0)
    assert reader().gauges() == {
        "tb_step": 4,
        "tb_learning_loss": 0.5,
        "tb_perf_step_time_seconds": 2.0,
        "tb_metrics_plugin_staleness_fill": 0,
        "tb_corrupt_records_total": 0,
    }


def test_tags_that_come_late(writer: EventFileWriter, reader: Callable[..., Reader]) -> None:
    following = reader()
    add(writer, 1, loss=1.0)
    assert "tb_moe_lb_loss" not in following.gauges()
    add(writer, 2, loss=math.nan, moe_lb_loss=0.25)
    found = following.gauges()
    assert (found["tb_step"], found["tb_moe_lb_loss"]) == (2, 0.25)
    assert math.isnan(found["tb_loss"])


def test_the_step_is_the_trainings(writer: EventFileWriter, reader: Callable[..., Reader]) -> None:
    for step in range(1, 5):
        add(writer, step, loss=1.0)
        add(writer, step * 512, **{"loss vs samples": 1.0})
    add(writer, 1, **{"eval/epoch": 1.0})
    assert reader().gauges()["tb_step"] == 4


def test_a_folder_that_comes_late(tmp_path: Path, reader: Callable[..., Reader]) -> None:
    following = reader()
    with pytest.raises(NoData, match="holds no event files"):
        following.gauges()
    add(EventFileWriter(str(tmp_path / "tb" / "logs")), 3, loss=1.0)
    assert following.gauges()["tb_step"] == 3


def test_runs_are_told_apart(tmp_path: Path, reader: Callable[..., Reader]) -> None:
    for name, step in (("", 3), ("eval", 7)):
        add(EventFileWriter(str(tmp_path / "tb" / name)), step, loss=1.0)
    found = reader().gauges()
    assert found["tb_step{run=.}"] == 3
    assert found["tb_step{run=eval}"] == 7


def test_tags_of_one_name_get_a_label(
    writer: EventFileWriter, reader: Callable[..., Reader], caplog: pytest.LogCaptureFixture
) -> None:
    add(writer, 1, **{"loss/total": 1.0, "loss_total": 2.0, "step": 9.0, "other": 3.0})
    found = reader().gauges()
    assert found["tb_loss_total{tag=loss/total}"] == 1.0
    assert found["tb_loss_total{tag=loss_total}"] == 2.0
    assert found["tb_step{tag=step}"] == 9.0
    assert found["tb_step"] == 1
    assert found["tb_other"] == 3.0
    assert "tb_loss_total: is the name for several tags" in caplog.text


def test_every_value_is_handed_on_at_its_time(
    writer: EventFileWriter, reader: Callable[..., Reader]
) -> None:
    following = reader()
    add(writer, 1, 1000.25, loss=1.0)
    add(writer, 2, 1001.5, loss=0.5)
    first = following.history()
    assert [entry for entry in first if entry[0] == "tb_loss"] == [
        ("tb_loss", "0", 1000.25, 1.0),
        ("tb_loss", "0", 1001.5, 0.5),
    ]
    assert [entry[3] for entry in first if entry[0] == "tb_step"] == [1, 2]
    assert following.history() == first
    add(writer, 3, 1002.0, loss=0.25)
    assert {entry[2] for entry in following.history()} == {1000.25, 1001.5, 1002.0}


def holding(points: int, since: float, begun: float = 0.0) -> EventFileRun:
    """A run with so many values that came at that moment."""
    run = EventFileRun(Path("/nowhere"), begun)
    run.points = [("loss", 1.0, 1000.0, FileAuthor(0))] * points
    run.steps = [(1, 1000.0, FileAuthor(0))]
    run.release(since, None)
    return run


@pytest.mark.parametrize(
    ("points", "now", "handed_on", "kept"),
    [
        # Nobody has ever scraped: ten minutes, but for a backlog after the time of starting.
        (10, 659.0, None, True),
        (10, 660.0, None, False),
        (MAX_POINTS, START_SECONDS - 1, None, True),
        (MAX_POINTS, START_SECONDS, None, False),
        # Scraped: a while after they were taken.
        (10, SETTLED_SECONDS, SETTLED_SECONDS - 1, True),
        (10, SETTLED_SECONDS + 1, SETTLED_SECONDS, False),
        (MAX_POINTS, LEAST_SECONDS + 1, LEAST_SECONDS, False),
        (MAX_POINTS, LEAST_SECONDS + 1, LEAST_SECONDS - 1, True),
        # Whoever scraped went away before: they are held, and the files are not read on.
        (10, 659.0, -1.0, True),
        (MAX_POINTS, 659.0, -1.0, True),
        (MAX_POINTS, 660.0, -1.0, False),
    ],
)
def test_how_long_values_are_handed_on(
    points: int, now: float, handed_on: float | None, kept: bool
) -> None:
    run = holding(points, 0.0)
    run.release(now, handed_on)
    assert (bool(run.points), bool(run.steps)) == (kept, kept)


def test_each_batch_is_let_go_in_its_turn() -> None:
    run = holding(10, 5.0)
    run.points += [("loss", 1.0, 1001.0, FileAuthor(0))] * 7
    run.release(6.0, None)
    run.release(100.0, 5.0 + SETTLED_SECONDS)
    assert (len(run.points), run.steps) == (7, [])
    run.release(5.0 + HOLD_SECONDS, None)
    assert len(run.points) == 7
    run.release(6.0 + HOLD_SECONDS, None)
    assert run.points == []


def test_what_no_prometheus_takes_keeps_nothing_else_out(
    writer: EventFileWriter,
    reader: Callable[..., Reader],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(run_module, "OLDEST_SECONDS", OLDEST_SECONDS)
    now = time.time()
    add(writer, 1, now - OLDEST_SECONDS - 60, loss=1.0)
    add(writer, 2, now - OLDEST_SECONDS + 600, loss=2.0)
    following = reader()
    assert {entry[3] for entry in following.history() if entry[0] == "tb_loss"} == {2.0}
    assert following.gauges()["tb_step"] == 2
    assert "30 days" in caplog.text


def test_the_host_is_the_writers_whoever_reads(
    writer: EventFileWriter, reader: Callable[..., Reader], tmp_path: Path
) -> None:
    add(writer, 1, loss=1.0)
    (path,) = (tmp_path / "tb").iterdir()
    path.rename(path.with_name("events.out.tfevents.1700000000.node7.example.com.12.0"))
    history = [sample for sample in reader().samples() if sample.timestamp is not None]
    assert {dict(sample.labels)["host"] for sample in history} == {"node7"}


def test_by_hand_only_the_newest_values_are_told(
    writer: EventFileWriter, reader: Callable[..., Reader]
) -> None:
    add(writer, 1, loss=1.0)
    assert reader(history=None).history() == []


def test_values_of_one_millisecond_are_all_kept(
    writer: EventFileWriter, reader: Callable[..., Reader]
) -> None:
    for step in range(4):
        add(writer, step, 1000.0001 + step * 1e-5, loss=float(step))
    found = [entry for entry in reader().history() if entry[0] == "tb_loss"]
    assert [entry[2] for entry in found] == [1000.0, 1000.001, 1000.002, 1000.003]


def test_a_restart_that_rewinds_is_another_attempt(
    tmp_path: Path, reader: Callable[..., Reader]
) -> None:
    folder = tmp_path / "tb"
    add(EventFileWriter(str(folder)), 8, 1008.0, loss=8.0)
    first = next(folder.iterdir())
    later = first.with_name("events.out.tfevents.9999999999.node1.123.0")
    add(EventFileWriter(str(tmp_path / "other")), 5, 1100.0, loss=5.0)
    next((tmp_path / "other").iterdir()).rename(later)
    following = reader()
    found = [entry for entry in following.history() if entry[0] == "tb_step"]
    assert found == [("tb_step", "0", 1008.0, 8.0), ("tb_step", "1", 1100.0, 5.0)]
    assert following.gauges()["tb_step"] == 5


def test_what_is_corrupt_is_counted_and_said(
    writer: EventFileWriter,
    tmp_path: Path,
    reader: Callable[..., Reader],
    caplog: pytest.LogCaptureFixture,
) -> None:
    for step in range(5):
        add(writer, step, loss=float(step))
    path = next((tmp_path / "tb").iterdir())
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 0xFF
    path.write_bytes(data)
    found = reader().gauges()
    assert found["tb_step"] == 4
    assert found["tb_corrupt_records_total"] == 1
    assert "corrupt" in caplog.text


@pytest.mark.parametrize("time", [math.nan, math.inf, -5.0, 1e300])
def test_a_time_that_is_none(
    writer: EventFileWriter, reader: Callable[..., Reader], time: float
) -> None:
    add(writer, 1, time, loss=1.0)
    following = reader()
    assert following.gauges()["tb_loss"] == 1.0
    assert following.history() == []


def test_every_cut_of_a_file_is_readable(
    writer: EventFileWriter, tmp_path: Path, reader: Callable[..., Reader]
) -> None:
    for step in range(3):
        add(writer, step, loss=float(step))
    path = next((tmp_path / "tb").iterdir())
    data = path.read_bytes()
    for cut in range(0, len(data), 7):
        path.write_bytes(data[:cut])
        assert reader().gauges()["tb_corrupt_records_total"] == 0


def test_a_folder_in_a_files_place(tmp_path: Path, reader: Callable[..., Reader]) -> None:
    (tmp_path / "tb" / "events.out.tfevents.1.h").mkdir(parents=True)
    add(EventFileWriter(str(tmp_path / "tb")), 3, loss=1.0)
    assert reader().gauges()["tb_step"] == 3


def test_open_files_of_processes(tmp_path: Path) -> None:
    fd = tmp_path / "proc/77/fd"
    fd.mkdir(parents=True)
    (fd / "3").symlink_to("/data/tb/events.out.tfevents.1.h.77.0")
    (fd / "4").symlink_to("/data/gone/events.out.tfevents.1.h.77.1 (deleted)")
    (fd / "5").symlink_to("socket:[1]")
    assert open_folders(tmp_path / "proc", [77, 78]) == {Path("/data/tb")}


def rank(number: int) -> Rank:
    return Rank(id=RankId("job", 0, number), process=ProcessId("n", 1), node="n")


def test_one_of_several_agents_reads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("socket.gethostname", lambda: "node1.cluster")
    monkeypatch.setattr("tempfile.gettempdir", lambda: str(tmp_path))
    here, beside = Readership(), Readership()
    by_node1 = FileName(1, 0, "node1", "7", "x")
    assert here.ours(tmp_path, by_node1, has_rank_0=False)
    assert not beside.ours(tmp_path, by_node1, has_rank_0=True)
    here.close()
    assert beside.ours(tmp_path, by_node1, has_rank_0=True)
    # Another host has taken over: this machine leaves the run.
    assert not beside.ours(tmp_path, FileName(2, 0, "node2", "7", "y"), has_rank_0=True)
    assert here.ours(tmp_path, FileName(0, 0, "", "", "z"), has_rank_0=True)
    assert not beside.ours(tmp_path, FileName(0, 0, "", "", "z"), has_rank_0=False)


def test_live_the_run_of_another_host_is_left_to_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.gettempdir", lambda: str(tmp_path))
    add(EventFileWriter(str(tmp_path / "tb")), 3, loss=1.0)
    options = TensorboardCollector.Options(folder=str(tmp_path / "tb"))
    context = Context(options=options, ranks=(rank(0),), state_dir=tmp_path)
    ours = TensorboardCollector(context)
    assert {s.name for family in ours.collect() for s in family.samples} >= {"tb_step"}
    ours.close()
    monkeypatch.setattr("socket.gethostname", lambda: "elsewhere")
    with pytest.raises(NoData, match="read from this node"):
        list(TensorboardCollector(context).collect())


def locks_held(folder: Path) -> set[str]:
    """The locks of runs in that folder for temporary files that this process has open."""
    found = set()
    for entry in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):
            found.add(os.readlink(entry))
    return {name for name in found if name.startswith(f"{folder}/") and name.endswith(".lock")}


def test_runs_that_are_over_are_let_go_of_when_there_are_many(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    host = socket.gethostname()
    context = Context(proc=tmp_path / "proc", state_dir=tmp_path, live=True)
    collector = TensorboardCollector(context)
    opened: set[Path] = set()
    monkeypatch.setattr(tensorboard, "open_folders", lambda proc, pids: opened)
    first = tmp_path / "goes-on"
    for number in range(MAX_RUNS + 30):
        folder = tmp_path / f"run-{number:03d}"
        for one in (first, folder):
            one.mkdir(exist_ok=True)
            (one / f"events.out.tfevents.1.{host}.77.0").touch()
        opened = {first, folder}
        collector.search()
        families = list(collector.collect())
    runs = {dict(one.labels)["run"] for family in families for one in family.samples}
    assert len(runs) == MAX_RUNS
    assert len(locks_held(tmp_path)) == MAX_RUNS
    assert "goes-on" in runs
    assert "run-000" not in runs
    collector.close()
    assert not locks_held(tmp_path)
