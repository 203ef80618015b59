"""What tells that a job lives: its own lines, and of a live session its own files' times."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from ray_sentinel.logs.catalogue import load_catalogue
from ray_sentinel.logs.triage import triage_path
from ray_sentinel.model.triage import Triage

NOW = 1_746_095_400.0
"""2025-05-01 10:30 UTC."""
MINUTE = 60.0
RAYLET = "".join(
    f"[2025-05-01 10:{m:02d}:00,000 I 900 900] (raylet) node_manager.cc:525: Sending heartbeat\n"
    for m in range(30)
)
WORKER = f"worker-{'ab' * 28}-01000000-900"


def _written(path: Path, text: str, minutes_ago: float) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    os.utime(path, (NOW - minutes_ago * MINUTE,) * 2)


def _triage(root: Path, *, live: bool = False) -> Triage:
    return triage_path(root, load_catalogue(), now=NOW, live=live)


def test_a_job_whose_workers_are_silent_does_not_live_by_the_clusters_heartbeat(
    tmp_path: Path,
) -> None:
    _written(tmp_path / f"{WORKER}.out", "actor made, waiting for a batch\n", 40)
    for name in ("raylet.out", "gcs_server.out", "dashboard_agent.log", "monitor.log"):
        _written(tmp_path / name, RAYLET, 0)
    answer = _triage(tmp_path, live=True)
    assert answer.kind == "hang"


def test_a_worker_that_prints_shows_that_the_job_lives(tmp_path: Path) -> None:
    _written(tmp_path / f"{WORKER}.out", "actor made, waiting for a batch\n", 1)
    _written(tmp_path / "raylet.out", RAYLET, 0)
    assert _triage(tmp_path, live=True).kind == "running"


def test_an_archive_is_not_running_because_its_raylet_went_on(tmp_path: Path) -> None:
    _written(tmp_path / f"{WORKER}.out", "2025-05-01 09:40:00,000 INFO waiting for a batch\n", 0)
    _written(tmp_path / "raylet.out", RAYLET, 0)
    assert _triage(tmp_path).kind != "running"


def test_a_small_log_that_was_copied_just_now_is_no_running_job(tmp_path: Path) -> None:
    _written(tmp_path / "job.log", "step 1 loss 2.5\nstep 2 loss 2.4\nstep 3 loss 2.3\n", 0)
    assert _triage(tmp_path / "job.log").kind == "unknown-death"


def test_an_engine_that_has_loaded_its_model_may_be_silent_for_ten_minutes(tmp_path: Path) -> None:
    text = "".join(
        f"2025-05-01 10:1{n // 4}:00,000 INFO Loading safetensors checkpoint shards: {n * 10:3d}% "
        f"Completed | {n}/10\n"
        for n in range(11)
    )
    _written(tmp_path / "engine.log", text, 0)
    assert _triage(tmp_path, live=True).phase == "kv-cache"
    _written(tmp_path / "engine.log", text, 18)
    answer = _triage(tmp_path, live=True)
    assert answer.kind == "hang"
    assert "slow storage" not in answer.cause


def test_a_ray_drivers_age_dates_the_lines_of_its_autoscaler(tmp_path: Path) -> None:
    begun = "2025-05-01 10:00:00,100\tINFO worker.py:1942 -- Connected to Ray cluster.\n"
    wait = "(autoscaler +{}) Resized to 8 CPUs.\n"
    log = begun + "step 3/9: 2.00 s\n" + "".join(wait.format(age) for age in ("25s", "59m5s"))
    (tmp_path / "job.log").write_text(log + "RuntimeError: boom\n", encoding="utf-8")
    told = triage_path(tmp_path, load_catalogue(), now=0.0)
    assert (told.ended_at or 0) - (told.started_at or 0) == pytest.approx(3545.0)
    assert (told.first_error_at or 0) - (told.started_at or 0) == pytest.approx(3545.0)


def test_a_driver_that_only_waits_for_nodes_stands_still(tmp_path: Path) -> None:
    begun = "2025-05-01 10:00:00,100\tINFO worker.py:1942 -- Connected to Ray cluster.\n"
    age = "(autoscaler +{}) Tip: use `ray status` to view detailed cluster status.\n"
    log = begun + "Starting training\n" + age.format("20s") + age.format("1h2m3s")
    (tmp_path / "job.log").write_text(log, encoding="utf-8")
    assert triage_path(tmp_path, load_catalogue(), now=0.0).kind in ("hang", "startup-stuck")


def _shards(hour: int, minutes: range) -> str:
    return "".join(
        f"2025-05-01 {hour:02d}:{m:02d}:00,000 - INFO - Loading checkpoint shards: {m}/90\n"
        for m in minutes
    )


def test_a_phase_lasts_from_its_first_line_where_each_line_shows_it(tmp_path: Path) -> None:
    group = "2025-05-01 09:00:00,000 - INFO - Initializing process group\n"
    (tmp_path / "job.log").write_text(group + _shards(9, range(5, 25)), encoding="utf-8")
    answer = _triage(tmp_path)
    assert (answer.phase, answer.phase_seconds) == ("model-load", 19 * MINUTE)


def test_a_phase_that_comes_again_after_steps_lasts_from_its_return(tmp_path: Path) -> None:
    steps = "".join(
        f"2025-05-01 09:{m:02d}:00,000 - INFO - step {m}/5000 | loss 2.5 | 60000 ms/step\n"
        for m in range(20, 40)
    )
    text = _shards(9, range(5, 20)) + steps + _shards(9, range(41, 44))
    (tmp_path / "job.log").write_text(text, encoding="utf-8")
    answer = _triage(tmp_path)
    assert (answer.phase, answer.phase_seconds) == ("model-load", 2 * MINUTE)
