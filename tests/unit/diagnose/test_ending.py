"""What is said of the end of a job of which only training series are known."""

from __future__ import annotations

import pytest

from ray_sentinel.diagnose.case import DiagnoseOptions
from ray_sentinel.diagnose.examine import examine
from ray_sentinel.diagnose.logs import LogFacts
from ray_sentinel.model.diagnosis import Diagnosis
from ray_sentinel.store.event_files.memory import MemorySource

BEGIN, STEPS = 1.7e9, 200
LAST = BEGIN + 10 * (STEPS - 1)


def diagnosed(logs: LogFacts, now: float | None, **more: float) -> Diagnosis:
    """Of a job of 200 steps of ten seconds; ``more`` are last values of other families."""
    source = MemorySource()
    times = [BEGIN + 10 * place for place in range(STEPS)]
    source.add("tb_step", {}, times, range(STEPS))
    source.add("tb_loss", {}, times, [2.0 - place / STEPS for place in range(STEPS)])
    for name, value in more.items():
        source.add(name, {}, [LAST], [value])
    return examine(source, logs=logs, options=DiagnoseOptions(now=now)).diagnosis


def planned(steps: int) -> LogFacts:
    return LogFacts(config={"max_steps": str(steps)})


def test_without_a_plan_the_end_is_said_to_be_unknown() -> None:
    found = diagnosed(LogFacts(), LAST + 1e6)
    assert (found.outcome, found.cause, found.culprits) == ("healthy", "none", ())
    assert found.root_cause.endswith(
        "The last step was written at 2023-11-14 22:46:30 UTC; nothing here says whether the job "
        "ended by itself."
    )


@pytest.mark.parametrize(
    ("logs", "now", "said"),
    [
        (planned(200), LAST + 1e6, "All of the 200 planned steps were done."),
        (planned(1000), LAST + 20, "the job seems to go on."),
        (planned(1000), None, "nothing here says whether it still runs, or why it ended."),
        (planned(-1), LAST + 20, "the job seems to go on."),
        (LogFacts(ended="completed"), LAST + 1e6, "By its log it was completed."),
    ],
)
def test_what_is_known_of_the_end_is_said(logs: LogFacts, now: float | None, said: str) -> None:
    found = diagnosed(logs, now)
    assert (found.outcome, found.cause) == ("healthy", "none")
    assert found.root_cause.endswith(said)


def test_fewer_steps_than_planned_are_an_early_end_that_accuses_nobody() -> None:
    found = diagnosed(planned(1000), LAST + 1e6)
    assert (found.outcome, found.cause, found.culprits) == ("unknown", "ended-early", ())
    assert found.root_cause.startswith("Ended early: step 199 of 1000 planned was the last one")


def test_closing_figures_are_an_end() -> None:
    found = diagnosed(planned(1000), LAST + 1e6, tb_train_train_runtime=1990.0)
    assert found.outcome == "healthy"
    assert "it ended by itself" in found.root_cause


@pytest.mark.parametrize("logs", [LogFacts(summary=True), LogFacts(failure="hang")])
def test_where_the_logs_tell_of_the_end_nothing_is_added(logs: LogFacts) -> None:
    assert diagnosed(logs, LAST + 1e6).root_cause.endswith("steps went on to 199.")


def test_where_hosts_were_watched_nothing_is_added() -> None:
    found = diagnosed(LogFacts(), LAST + 1e6, hw_load1=1.0)
    assert found.root_cause.endswith("steps went on to 199.")
