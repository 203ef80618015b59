"""For Ray Train v2:

    trainer = TorchTrainer(train, run_config=RunConfig(callbacks=[RayTrainCallback()]))

Every worker attaches before the training function runs in it. Steps are counted by the first
PyTorch optimizer, or by ``ray_sentinel.attach().step()`` in the function.
"""

from __future__ import annotations

import logging
from typing import Any

from ray.exceptions import RayError
from ray.train.v2._internal.execution.callback import WorkerGroupCallback

log = logging.getLogger(__name__)


# Not a UserCallback: those learn only of reports and exceptions, never of the workers.
class RayTrainCallback(WorkerGroupCallback):  # type: ignore[misc]
    """Runs in Ray Train's controller. Arguments go to ``ray_sentinel.attach`` in the workers."""

    def __init__(self, job: str | None = None, config: Any = None) -> None:
        self._job, self._config = job, config

    def after_worker_group_start(self, worker_group: Any) -> None:
        """Ray Train calls this once all workers of an attempt have started."""
        try:
            told = worker_group.execute(_attach, self._job, self._config)
        except (RayError, RuntimeError):  # a training never fails because of its watcher
            log.exception("ray_sentinel could not attach to the workers; they go on without")
            return
        log.info("ray_sentinel watches ranks %s", told)


def _attach(job: str | None, config: Any) -> int | None:
    """In a worker: its rank."""
    import ray.train

    import ray_sentinel

    context = ray.train.get_context()
    rank = context.get_world_rank()
    ray_sentinel.attach(
        job or context.get_experiment_name(), rank, context.get_world_size(), config
    )
    return int(rank)
