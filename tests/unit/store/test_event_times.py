"""Clocks that were wrong while an event file was written."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from tensorboard.compat.proto.event_pb2 import Event as EventProto

from ray_sentinel.diagnose.examine import examine
from ray_sentinel.diagnose.series import Floats, Selector
from ray_sentinel.evidence.event_files.events import EventRecord, Scalar
from ray_sentinel.evidence.event_files.state import RunState
from ray_sentinel.store.event_files.folder import settled
from ray_sentinel.store.event_files.source import EventFilesSource, load_events
from tests.support.event_files import event, framed

COUNT = 720
TRUE = 1.7e9 + 10.0 * np.arange(COUNT)
STEPS = np.arange(COUNT, dtype=float)


def loaded(folder: Path, times: Floats) -> EventFilesSource:
    parts = []
    for step, time in enumerate(times):
        for tag, value in (("loss", 3.0 - step / COUNT), ("lr", 1e-4)):
            proto = EventProto.FromString(event(step, tag, value))
            proto.wall_time = time
            parts.append(framed(proto.SerializeToString()))
    file = folder / "events.out.tfevents.1.host"
    file.write_bytes(b"".join(parts))
    return load_events([file])


def told(source: EventFilesSource, name: str) -> tuple[Floats, Floats]:
    one = source.samples(Selector(name), -np.inf, np.inf)[0]
    return one.times, one.values


@pytest.mark.parametrize("stray", [100.0, 1.9e9])
@pytest.mark.parametrize("place", [0, 1, 400, COUNT - 1])
def test_one_stray_time_hides_no_job(tmp_path: Path, stray: float, place: int) -> None:
    times = TRUE.copy()
    times[place] = stray
    source = loaded(tmp_path, times)
    found, steps = told(source, "tb_step")
    assert np.array_equal(steps, STEPS)
    assert np.abs(found - TRUE).max() <= 1e-6
    assert [note.split(" in ")[0] for note in source.notes] == ["2 values"]
    assert examine(source).inventory.steps == (0.0, COUNT - 1.0)


@pytest.mark.parametrize("off", [-3600.0, 3600.0])
def test_one_that_is_an_hour_off_is_put_in_its_place(tmp_path: Path, off: float) -> None:
    times = TRUE.copy()
    times[400] += off
    assert np.abs(told(loaded(tmp_path, times), "tb_loss")[0] - TRUE).max() <= 1e-6


def test_a_clock_that_was_set_back_loses_nothing(tmp_path: Path) -> None:
    times = TRUE - np.where(STEPS >= COUNT / 2, 3600.0, 0.0)
    source = loaded(tmp_path, times)
    for name in ("tb_step", "tb_loss"):
        found, values = told(source, name)
        assert np.array_equal(found, TRUE - 3600.0)
        assert values.size == COUNT
    report = examine(source)
    assert report.inventory.steps == (0.0, COUNT - 1.0)
    assert report.diagnosis.outcome == "healthy"
    assert "placed by the order" in source.notes[0]


def test_right_times_are_left_as_they_are(tmp_path: Path) -> None:
    pause = TRUE + np.where(STEPS > 300, 30 * 86400.0, 0.0)
    source = loaded(tmp_path, pause)
    assert np.array_equal(told(source, "tb_step")[0], pause)
    assert source.notes == []


def test_steps_that_begin_again_may_have_earlier_times() -> None:
    """As where a file was made from others, one after the other."""
    times, steps = np.concatenate([TRUE, TRUE - 50.0]), np.concatenate([STEPS, STEPS])
    assert np.array_equal(settled(times, steps, float(np.median(times))), times)


def test_the_step_is_that_of_the_tag_that_is_written_most_often() -> None:
    """As it was found by asking all tags after each event."""
    dice, state = np.random.default_rng(0), RunState()
    for step in range(500):
        tags = dice.choice(["a", "b", "c", "d"], size=int(dice.integers(1, 4)), replace=False)
        state.add(EventRecord(1.0 + step, step, tuple(Scalar(str(tag), 1.0) for tag in tags)))
        most = max(state.tags.values(), key=lambda latest: latest.points)
        assert state.step == most.step
