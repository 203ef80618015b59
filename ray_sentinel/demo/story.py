"""The demo from its beginning to its end, without a word on the terminal."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

from ray_sentinel.actors.deployment import deploy
from ray_sentinel.config import Config
from ray_sentinel.demo.actor_plan import ActorTrialPlan
from ray_sentinel.demo.actor_trial import ActorTrial, ActorTrialOutcome
from ray_sentinel.demo.cluster import Machines, start_machines
from ray_sentinel.demo.plan import TrialPlan
from ray_sentinel.demo.program import PLAIN
from ray_sentinel.demo.stage import ShowStatus, Stage, show_nothing
from ray_sentinel.demo.trial import TrialOutcome, play


@contextlib.contextmanager
def watched_machines(
    folder: Path, show: ShowStatus = show_nothing, *, client: bool = False, dashboard: bool = False
) -> Iterator[Machines]:
    """A cluster with an agent on each node; ``folder`` takes the sentinel's ``log_dir``. Its head
    serves Ray Client, and has a dashboard, only if asked to.

    Raises SentinelError if the agents do not start.
    """
    config = Config(job="demo", log_dir=str(folder / "ray_sentinel"))
    with start_machines(client=client, dashboard=dashboard) as machines:
        deploy.ensure(machines.ray, config)
        try:
            Stage(machines.ray, show).wait_for_agents(len(machines.addresses))
            yield machines
        finally:
            deploy.down(machines.ray)


def run(
    plan: TrialPlan | ActorTrialPlan, folder: Path, *, show: ShowStatus
) -> TrialOutcome | ActorTrialOutcome:
    """Play it on a cluster of its own. ``folder`` takes the scripts, the ranks' logs and the
    sentinel's ``log_dir``. The names in a job of actors are plain.

    Raises SentinelError if the cluster or the job does not start.
    """
    show(None, "starting a Ray cluster of three nodes")
    with watched_machines(folder, show) as machines:
        stage = Stage(machines.ray, show)
        if isinstance(plan, ActorTrialPlan):
            return ActorTrial(plan, machines, stage, folder, PLAIN).play(report=True)
        return play(plan, machines, stage, folder, report=True)
