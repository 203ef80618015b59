"""A plan of how many steps a job was to do, and its end judged against it."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from ray_sentinel.diagnose.case import DiagnoseOptions, JobCase
from ray_sentinel.diagnose.examine import examine
from ray_sentinel.diagnose.logs import LogFacts, Total
from ray_sentinel.diagnose.logtext import MainLog
from ray_sentinel.diagnose.plan import PlannedSteps, plan_of
from ray_sentinel.diagnose.view import View
from ray_sentinel.model.diagnosis import Diagnosis
from ray_sentinel.store.event_files.memory import MemorySource

BEGIN = 1.7e9


def source_of(
    steps: range, epoch: Callable[[int], float] | None = None, delay: float = 0.001
) -> MemorySource:
    """Steps ten seconds apart, and the epochs that were written ``delay`` seconds after each."""
    source = MemorySource()
    times = [BEGIN + 10 * place for place in range(len(steps))]
    source.add("tb_step", {}, times, list(steps))
    source.add("tb_train_loss", {}, times, np.linspace(3, 2, len(steps)))
    if epoch is not None:
        later = [time + delay for time in times]
        source.add("tb_train_epoch", {}, later, [epoch(step) for step in steps])
    return source


def planned(source: MemorySource, **facts: object) -> PlannedSteps | None:
    span = source.span()
    assert span is not None
    return plan_of(JobCase(View(source, *span), LogFacts(**facts)))


def ended(source: MemorySource, **facts: object) -> Diagnosis:
    logs = LogFacts(**facts)
    return examine(source, logs=logs, options=DiagnoseOptions(now=BEGIN + 1e7)).diagnosis


def fraction(step: int) -> float:
    return step / 500


def lightning(step: int) -> float:
    return step // 1000


@pytest.mark.parametrize("delay", [0.001, -0.001])
@pytest.mark.parametrize("digits", [2, 9])
def test_fractions_of_epochs_tell_the_steps_of_one(delay: float, digits: int) -> None:
    source = source_of(range(10, 1400, 10), lambda step: round(fraction(step), digits), delay)
    plan = planned(source, config={"num_train_epochs": "3.0", "max_steps": "-1"})
    assert plan is not None
    assert plan.text.startswith("3 planned epochs (")
    assert 1480 < plan.least <= plan.most < 1520
    assert plan.judge(1390, 10) == "early"
    assert plan.judge(1500, 10) == "done"


def test_an_end_within_the_second_of_three_epochs_is_early() -> None:
    source = source_of(range(10, 900, 10), fraction)
    found = ended(source, config={"num_train_epochs": "3"})
    assert (found.outcome, found.cause, found.culprits) == ("unknown", "ended-early", ())
    assert found.root_cause.startswith("Ended early: step 890 of 3 planned epochs (1")


def test_all_epochs_done_are_no_early_end() -> None:
    found = ended(source_of(range(10, 1501, 10), fraction), config={"num_train_epochs": "3"})
    assert found.outcome == "healthy"
    assert "All of the 3 planned epochs" in found.root_cause


def test_whole_epochs_bound_the_steps_of_one() -> None:
    early = planned(source_of(range(49, 2100, 50), lightning), config={"trainer.max_epochs": "4"})
    assert early is not None
    assert early.judge(2099, 50) == "early"
    last = planned(source_of(range(49, 3000, 50), lightning), config={"max_epochs": "3"})
    assert last is not None
    assert (last.least, round(last.most)) == (3000, 3074)
    assert last.judge(2999, 50) == "unclear"


def test_an_end_that_may_be_the_plans_accuses_nobody() -> None:
    found = ended(source_of(range(49, 3000, 50), lightning), config={"max_epochs": "3"})
    assert found.outcome == "healthy"
    assert "whether that was the end of the plan cannot be told from here" in found.root_cause


def test_an_epochs_bar_makes_it_exact_where_it_stands_at_the_last_step() -> None:
    source = source_of(range(49, 3000, 50), lightning)
    settings = {"max_epochs": "3"}
    plan = planned(source, config=settings, totals=(Total(1000, 999, per_epoch=True),))
    assert plan is not None
    assert (plan.least, plan.most, plan.judge(2999, 50)) == (3000, 3000, "done")
    for other in (Total(1000, 400, per_epoch=True), Total(4000, 999, per_epoch=True)):
        assert planned(source, config=settings, totals=(other,)).most > 3050


@pytest.mark.parametrize(
    "epoch",
    [None, lambda step: step // 1000 + 1, lambda step: (step * 7919) % 11, lambda step: -1.0],
    ids=["none", "from one on", "noise", "negative"],
)
def test_epochs_that_cannot_be_told_are_no_plan(epoch: Callable[[int], float] | None) -> None:
    source = source_of(range(49, 3000, 50), epoch)
    assert planned(source, config={"max_epochs": "3"}) is None


def test_within_the_first_epoch_more_than_one_means_more_to_come() -> None:
    plan = planned(source_of(range(49, 900, 50), lightning), config={"max_epochs": "2"})
    assert plan is not None
    assert "more than 1800 steps" in plan.text
    assert plan.judge(899, 50) == "early"


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        ({"max_steps": "200", "max_epochs": "3"}, "200 planned steps"),
        ({"max_steps": "90000", "max_epochs": "3"}, "3 planned epochs (3000 to 3074 steps)"),
        ({"max_steps": "90000", "num_train_epochs": "3"}, "90000 planned steps"),
    ],
)
def test_what_is_reached_first_ends_a_lightning_job(settings: dict[str, str], text: str) -> None:
    plan = planned(source_of(range(49, 3000, 50), lightning), config=settings)
    assert plan is not None
    assert plan.text == text


BAR = "{percent:3d}%|####      | {step}/{total} [05:00<10:00,  1.20it/s]"


def logged(*bars: tuple[int, int]) -> tuple[Total, ...]:
    log = MainLog("job.log")
    log.feed(
        BAR.format(percent=100 * step // total, step=step, total=total) for step, total in bars
    )
    return log.as_facts().totals


def test_the_bar_that_stands_at_the_last_step_tells_the_end() -> None:
    source = source_of(range(10, 700, 10))
    # Evaluations have bars without a title, too.
    totals = logged((500, 5000), (100, 100), (694, 5000), (63, 64))
    plan = planned(source, totals=totals)
    assert plan is not None
    assert plan.text == "5000 planned steps"
    assert planned(source, totals=logged((300, 5000))) is None
    assert planned(source, totals=logged((694, 5000), (690, 800))) is None


def test_a_saved_state_tells_the_end() -> None:
    source = source_of(range(10, 700, 10))
    assert planned(source, totals=(Total(900, 500, saved=True),)) == PlannedSteps(
        least=900, most=900, text="900 planned steps"
    )
    assert planned(source, totals=(Total(9000, 5000, saved=True),)) is None
    different = (Total(900, 500, saved=True), Total(800, 400, saved=True))
    assert planned(source, totals=different) is None


def watched(planned: int, steps: int = 200) -> Diagnosis:
    """A job whose GPUs rest for half an hour after the last step."""
    source = MemorySource()
    times = [BEGIN + 10 * place for place in range(steps + 180)]
    source.add(
        "tb_step", {"host": "n0"}, times, [min(place, steps - 1) for place in range(len(times))]
    )
    for gpu in range(4):
        for host in ("n0", "n1", "n2"):
            labels = {"host": host, "gpu": str(gpu)}
            noise = np.random.default_rng(gpu).normal(0, 3, len(times))
            busy = np.arange(len(times)) < steps
            source.add("hw_gpu_power_watts", labels, times, np.where(busy, 690, 90) + noise)
            source.add("ray_node_gpus_utilization", labels, times, np.where(busy, 98.0, 0.0))
    logs = LogFacts(config={"steps": str(planned)})
    return examine(source, logs=logs).diagnosis


def test_a_watched_job_that_did_all_planned_steps_is_well() -> None:
    found = watched(200)
    assert (found.outcome, found.culprits) == ("healthy", ())
    assert "All of the 200 planned steps were done." in found.root_cause


def test_a_watched_job_that_came_to_rest_before_its_plan_ended_early() -> None:
    found = watched(1000)
    assert (found.outcome, found.cause, found.culprits) == ("unknown", "ended-early", ())
    assert "step 199 of 1000 planned" in found.root_cause
