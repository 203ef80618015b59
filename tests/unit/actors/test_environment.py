"""The variables of our actors and helpers."""

from __future__ import annotations

from ray_sentinel.actors.deployment import environment


def test_our_actors_are_no_ranks() -> None:
    theirs = {"RANK": "3", "SLURM_STEP_ID": "1", "NCCL_DEBUG": "INFO", "HOME": "/h"}
    blank = environment.actor_variables(theirs)
    assert {"RANK", "WORLD_SIZE", "MASTER_ADDR", "SLURM_STEP_ID", "NCCL_DEBUG"} <= set(blank)
    assert {name for name, value in blank.items() if value} == {
        "RAY_SENTINEL_ROLE",
        "RAY_worker_niceness",
        "RAY_task_events_report_interval_ms",
        "RAY_event_stats",
    }
    assert "HOME" not in blank
    environment.forget_identity(theirs)
    assert theirs == {"HOME": "/h"}


def test_a_helper_imports_what_its_caller_can() -> None:
    given = {"RANK": "3", "RAY_JOB_CONFIG_JSON_ENV_VAR": "{}", "PATH": "/bin"}
    found = environment.helper_variables(given, ["", "/a", "/b", "/a", "relative"])
    assert found == {"PATH": "/bin", "PYTHONPATH": "/a:/b"}
