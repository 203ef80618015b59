"""One cluster for all jobs of the fault suite; some of them run at the same time."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor

import pytest

from ray_sentinel.demo.cluster import Machines
from ray_sentinel.demo.plan import TrialPlan
from ray_sentinel.demo.story import watched_machines
from ray_sentinel.demo.suite import trial
from ray_sentinel.demo.trial import TrialOutcome
from tests.support.lasting import Lasting

PARALLEL = 3

Played = Callable[[TrialPlan], TrialOutcome]


@pytest.fixture(scope="session")
def lasting_machines(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lasting[Machines]]:
    lasting = Lasting(
        "machines",
        lambda undo: undo.enter_context(watched_machines(tmp_path_factory.mktemp("faults"))),
    )
    yield lasting
    lasting.end()


@pytest.fixture(scope="module")
def machines(lasting_machines: Lasting[Machines]) -> Machines:
    """The cluster, watched."""
    return lasting_machines.get()


@pytest.fixture(scope="module")
def played(machines: Machines, drawn: list[TrialPlan]) -> Iterator[Played]:
    """Gives the outcome of a plan; all that were collected are played in their order."""
    with ThreadPoolExecutor(PARALLEL) as pool:
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
