"""One cluster for all trainings of the fault suite; some of them run at the same time."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor

import pytest

from ray_sentinel.demo.plan import TrialPlan
from ray_sentinel.demo.story import watched_machines
from ray_sentinel.demo.suite import trial
from ray_sentinel.demo.trial import TrialOutcome

PARALLEL = 3

Played = Callable[[TrialPlan], TrialOutcome]


@pytest.fixture(scope="module")
def played(tmp_path_factory: pytest.TempPathFactory, drawn: list[TrialPlan]) -> Iterator[Played]:
    """Gives the outcome of a plan; all that were collected are played in their order.

    It ends with its module: a driver that stays connected would be in the way of other clusters.
    """
    with (
        watched_machines(tmp_path_factory.mktemp("faults")) as machines,
        ThreadPoolExecutor(PARALLEL) as pool,
    ):
        futures: dict[tuple[str, int], Future[TrialOutcome]] = {
            (plan.fault, plan.seed): pool.submit(trial, plan, machines) for plan in drawn
        }
        yield lambda plan: futures[plan.fault, plan.seed].result()
        for future in futures.values():
            future.cancel()


@pytest.fixture(scope="session")
def drawn(request: pytest.FixtureRequest) -> list[TrialPlan]:
    """The plans of all tests that were collected, as their parameter ``plan``."""
    specs = [getattr(item, "callspec", None) for item in request.session.items]
    return [spec.params["plan"] for spec in specs if spec and "plan" in spec.params]
