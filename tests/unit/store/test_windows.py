"""Times and windows as people write them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from ray_sentinel.errors import InputError, UsageError
from ray_sentinel.store.event_files.memory import MemorySource
from ray_sentinel.store.incident_window import incident_window
from ray_sentinel.store.windows import parse_time, parse_window


def source() -> MemorySource:
    memory = MemorySource("job")
    times = [1000.0 + 10 * index for index in range(1000)]
    memory.add("tb_step", {"host": "a"}, times, [min(index, 600) for index in range(1000)])
    return memory


@pytest.mark.parametrize(
    ("text", "window"),
    [
        ("2000..3000", (2000.0, 3000.0)),
        ("..3000", (1000.0, 3000.0)),
        ("2000..", (2000.0, 10990.0)),
        ("last-30m", (9190.0, 10990.0)),
        ("last-10h", (1000.0, 10990.0)),
        ("last-step", (7000.0 - 1800.0, 10990.0)),
        ("step-100..step-300", (2000.0, 4000.0)),
        ("step-100..", (2000.0, 10990.0)),
        ("1970-01-01T00:33:20..1970-01-01T00:50:00Z", (2000.0, 3000.0)),
    ],
)
def test_windows(text: str, window: tuple[float, float]) -> None:
    assert parse_window(text, source()) == pytest.approx(window, abs=11)


@pytest.mark.parametrize("text", ["3000..2000", "yesterday", "last-30x", "1..x"])
def test_what_is_no_window_is_refused(text: str) -> None:
    with pytest.raises(UsageError):
        parse_window(text, source())


def test_a_step_that_was_never_done_is_said() -> None:
    with pytest.raises(InputError, match="does not reach step 900"):
        parse_window("step-100..step-900", source())


def test_times() -> None:
    assert parse_time("12.5") == 12.5
    assert parse_time("1970-01-01T01:00:00+01:00") == 0.0


def test_last_step_without_steps_says_what_to_do() -> None:
    memory = MemorySource("job")
    memory.add("up", {}, [1.0, 2.0], [1, 1])
    with pytest.raises(InputError, match="--window"):
        parse_window("last-step", memory)


def test_an_incident_gives_its_window(tmp_path: Path) -> None:
    bundle = tmp_path / "incidents" / "20260101T000000Z-slow-1"
    bundle.mkdir(parents=True)
    record = {"id": "i1", "last_progress": 5000.0, "confirmed_at": 5100.0, "resolved_at": None}
    (bundle / "incident.json").write_text(json.dumps(record))
    assert incident_window(tmp_path, "i1") == (3200.0, 6000.0)
    assert incident_window(tmp_path, bundle.name) == (3200.0, 6000.0)
    # What was before the job is another's.
    (bundle / "incident.json").write_text(json.dumps({**record, "job_since": 4000.0}))
    assert incident_window(tmp_path, "i1") == (3940.0, 6000.0)
    with pytest.raises(InputError, match="no incident"):
        incident_window(tmp_path, "i2")
    with pytest.raises(InputError, match="folder"):
        incident_window(None, "i1")
