"""Checkpoints that come to take longer, while every step between them is as fast as before."""

from __future__ import annotations

import numpy as np

from ray_sentinel.diagnose.examine import examine
from ray_sentinel.model.diagnosis import Diagnosis
from ray_sentinel.store.event_files.memory import MemorySource

BEGIN, STEP, EVERY, SAVES = 1.7e9, 4.0, 50, 14
HOSTS = ("n0", "n1", "n2", "n3")


def diagnosed(*, later: float, busy: tuple[str, ...] = ()) -> Diagnosis:
    """Saves of 20 s, from the eighth on of ``later`` seconds, in which ``busy`` wait for
    storage."""
    clock, ends, saves = 60.0, [], []
    for number in range(1, SAVES * EVERY + 30):
        clock += STEP
        ends.append(clock)
        if number % EVERY == 0:
            length = 20.0 if len(saves) < 7 else later
            saves.append((clock, clock + length))
            clock += length
    times = np.arange(0.0, clock, 10.0)
    done = np.searchsorted(ends, times, side="right").astype(float)
    rng, source = np.random.default_rng(3), MemorySource()
    source.add("tb_step", {"host": "n0"}, BEGIN + times, np.where(done > 0, done, np.nan))
    lengths = STEP * (1 + rng.normal(0, 0.005, times.size))
    source.add("tb_perf_step_time_seconds", {"host": "n0"}, BEGIN + times, lengths)
    saving = np.any([(times >= a) & (times < b) for a, b in saves], axis=0)
    hard = np.any([(times >= a) & (times < b) for a, b in saves[7:]], axis=0)
    for host in HOSTS:
        full = np.abs(rng.normal(0, 0.2, times.size)) + 4 * saving + 60.0 * hard * (host in busy)
        blocked = rng.poisson(0.3, times.size) + 3 * saving + 30.0 * hard * (host in busy)
        source.add("hw_io_pressure_full_pct", {"host": host}, BEGIN + times, full)
        source.add("hw_procs_blocked", {"host": host}, BEGIN + times, blocked)
        for gpu in "0123":
            power = np.where(saving, 90.0, 600.0) + rng.normal(0, 5, times.size)
            source.add("hw_gpu_power_watts", {"host": host, "gpu": gpu}, BEGIN + times, power)
    return examine(source).diagnosis


def test_saves_that_take_longer_are_told_with_the_storage_behind_them() -> None:
    answer = diagnosed(later=150.0, busy=HOSTS)
    assert (answer.outcome, answer.cause, answer.culprits) == ("found", "checkpoint-slow", ())
    assert "on all 4 hosts" in answer.root_cause
    assert answer.chain[0].role == "root"


def test_the_host_that_alone_waits_for_its_storage_is_named() -> None:
    answer = diagnosed(later=150.0, busy=("n2",))
    assert answer.cause == "checkpoint-slow"
    assert {one.host for one in answer.culprits} == {"n2"}


def test_without_an_explanation_nobody_is_named() -> None:
    answer = diagnosed(later=150.0)
    assert (answer.cause, answer.culprits) == ("checkpoint-slow", ())
    assert "does not show why" in answer.root_cause


def test_saves_of_the_usual_length_are_well() -> None:
    assert diagnosed(later=20.0).outcome == "healthy"
    assert diagnosed(later=24.0).outcome == "healthy"
