"""One of several training runs, chosen by its name."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tensorboard.compat.proto.event_pb2 import Event
from tensorboard.compat.proto.summary_pb2 import Summary

from ray_sentinel.cli.main import main
from ray_sentinel.diagnose.series import Selector
from ray_sentinel.errors import InputError
from ray_sentinel.store.event_files.find import find_event_files
from ray_sentinel.store.event_files.memory import MemorySource
from ray_sentinel.store.event_files.source import load_events, with_events
from tests.support.event_files import framed

BEGIN = 1.7e9


def put(folder: Path, steps: range, loss: float, begin: float) -> None:
    """One event file with a loss every ten seconds from ``begin`` seconds on."""
    folder.mkdir(parents=True, exist_ok=True)
    parts = []
    for place, step in enumerate(steps):
        summary = Summary(value=[Summary.Value(tag="loss", simple_value=loss)])
        proto = Event(wall_time=BEGIN + begin + 10 * place, step=step, summary=summary)
        parts.append(framed(bytes(proto.SerializeToString())))
    (folder / f"events.out.tfevents.{BEGIN + begin:.0f}.host").write_bytes(b"".join(parts))


@pytest.fixture
def job(tmp_path: Path) -> Path:
    """``a/exp1``, ``b/exp1``, and ``b/exp2`` that was started again once."""
    put(tmp_path / "a" / "exp1", range(60), 1.0, 0)
    put(tmp_path / "b" / "exp1", range(60), 2.0, 2000)
    put(tmp_path / "b" / "exp2", range(60), 3.0, 4000)
    put(tmp_path / "b" / "exp2_again", range(50, 120), 3.5, 5000)
    return tmp_path


def loss(folder: Path, run: str) -> set[float]:
    found = load_events(find_event_files(folder), run=run).samples(Selector("tb_loss"), 0, 2e9)
    return {float(value) for one in found for value in one.values}


@pytest.mark.parametrize(
    ("name", "losses"),
    [
        ("a/exp1", {1.0}),
        ("./a/exp1", {1.0}),
        ("b/exp1", {2.0}),
        ("exp2", {3.0, 3.5}),
        ("b/exp2_again", {3.0, 3.5}),
    ],
)
def test_a_run_is_taken_by_its_name(job: Path, name: str, losses: set[float]) -> None:
    assert loss(job, name) == losses


def test_a_run_is_taken_by_its_whole_path(job: Path) -> None:
    assert loss(job, str(job / "b" / "exp1")) == {2.0}


def test_the_others_are_still_told(job: Path) -> None:
    notes = load_events(find_event_files(job), run="a/exp1").notes
    assert "3 training runs: a/exp1, as was asked for, is taken; left out: b/exp1" in notes[0]


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("exp3", "no training run has the name 'exp3'. The runs there: a/exp1, b/exp1, b/exp2"),
        ("xexp1", "no training run has the name"),
        ("exp1", "more than one run has the name 'exp1'. The runs there: a/exp1, b/exp1"),
    ],
)
def test_unknown_and_ambiguous_names_are_wrong_usage(
    job: Path, name: str, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["diagnose", str(job), "--run", name, "--json"]) == 2
    assert said in capsys.readouterr().err


def test_two_runs_of_one_folder_are_compared(job: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["compare", str(job), str(job), "--run", "a/exp1", "--run", "b/exp1", "--json"]
    assert main(arguments) == 1
    (found,) = json.loads(capsys.readouterr().out)["comparisons"]
    assert found["first"] == f"{job} (a/exp1)"
    (delta,) = [one for one in found["deltas"] if one["title"] == "loss"]
    assert (delta["first"], delta["second"]) == (1.0, 2.0)


def test_one_name_counts_for_all_jobs_and_three_for_two_are_refused(
    job: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["compare", str(job), str(job), "--run", "a/exp1", "--json"]) == 0
    capsys.readouterr()
    assert main(["compare", str(job), str(job), *["--run", "a/exp1"] * 3]) == 2
    assert "give --run once, or once for each of the 2 jobs" in capsys.readouterr().err


def test_beside_other_series_a_run_has_to_fit_them(job: Path) -> None:
    database = MemorySource("series")
    times = [BEGIN + 2000 + 10 * place for place in range(60)]
    database.add("hw_gpu_power_watts", {"host": "n1", "gpu": "0"}, times, [500.0] * 60)
    taken = with_events(database, job, "b/exp1").samples(Selector("tb_loss"), 0, 2e9)
    assert {float(one.values[0]) for one in taken} == {2.0}
    with pytest.raises(InputError, match="written at another time"):
        with_events(database, job, "a/exp1")
    with pytest.raises(InputError, match="holds no event files"):
        with_events(database, None, "exp1")
