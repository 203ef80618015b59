"""``attach()``: the one line in a training, and the ``Sentinel`` that it gives back.

In a rank it opens the progress record. In a rank or a driver it sees to it, in the background,
that the Ray cluster is watched. It never waits for either, and nothing that goes wrong here
reaches the training unless ``strict`` asks for it.
"""

from __future__ import annotations

import logging
import os
import sys
import threading
from collections.abc import Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Any, SupportsFloat

from ray_sentinel.config import Config, absolute, load
from ray_sentinel.errors import SentinelError

if TYPE_CHECKING:  # 40 ms, for a process that attaches and is no rank
    from ray_sentinel.actors.deployment.deployer import Deployer
    from ray_sentinel.model.health import Health
    from ray_sentinel.model.incident import Incident
    from ray_sentinel.model.status import Status
    from ray_sentinel.progress.rank.lifecycle import Lifecycle
    from ray_sentinel.progress.rank.writer import ProgressWriter

log = logging.getLogger("ray_sentinel")

_lock = threading.Lock()
_current: Sentinel | None = None


def attach(
    job: str | None = None,
    rank: int | None = None,
    world_size: int | None = None,
    config: Config | Mapping[str, Any] | str | os.PathLike[str] | None = None,
    *,
    strict: bool = False,
) -> Sentinel:
    """Have this training watched. Call it in each rank, in the driver, or in both.

    ``job``, ``rank`` and ``world_size`` are found out (torchrun, Ray Train, SLURM, JAX, ...) where
    not given. ``config`` is a file, a mapping that nests as the file does, or a ``Config``.
    A second call in one process returns the same Sentinel. With ``strict`` problems are raised
    (ConfigError, RecordError); else they are logged once and the training goes on unwatched.
    """
    global _current
    with _lock:
        if _current is not None and _current.pid == os.getpid():
            _current.rename(job, rank, world_size)
            return _current
        try:
            settings = absolute(_settings(config, job), Path.cwd())
        except (SentinelError, OSError) as error:  # OSError: there is no current folder any more
            if strict:
                raise
            log.warning("ray_sentinel: %s; the defaults are used", error)
            settings = Config(job=job or "")
        _current = Sentinel(settings, strict=strict)
        try:
            _current.begin(job, rank, world_size)
        except Exception:  # a training never fails because of its watcher
            if strict:
                _current = None
                raise
            log.exception("ray_sentinel could not attach; the training goes on without")
        return _current


def _settings(
    config: Config | Mapping[str, Any] | str | os.PathLike[str] | None, job: str | None
) -> Config:
    if isinstance(config, Config):
        return config
    overrides = {"job": job} if job else {}
    if isinstance(config, Mapping):
        return load(overrides={**config, **overrides})
    return load(config, overrides=overrides)


class Sentinel:
    """What ``attach`` returns. ``step`` and ``phase`` belong to the thread that trains."""

    def __init__(self, config: Config, *, strict: bool = False) -> None:
        self.config = config
        self.pid = os.getpid()
        """The process that attached; a fork of it is not attached."""
        self._strict = strict
        self._writer: ProgressWriter | None = None
        self._life: Lifecycle | None = None
        self._deployer: Deployer | None = None
        self._names: tuple[str | None, int | None, int | None] = (None, None, None)

    def begin(self, job: str | None, rank: int | None, world_size: int | None) -> None:
        """Open the record and start the deployment; called once by ``attach``."""
        from ray_sentinel.actors.deployment.deployer import Deployer

        self._names = (job or self.config.job or None, rank, world_size)
        if not _may_be_a_driver() or rank is not None or self._identity_is_known():
            self._open()
        self._deployer = Deployer(self.config)
        self._deployer.start()

    def _identity_is_known(self) -> bool:
        from ray_sentinel.progress.rank import who

        return who.is_sure(who.resolve(*self._names))

    def _open(self) -> ProgressWriter:
        from ray_sentinel.progress.rank import lifecycle, who
        from ray_sentinel.progress.rank.writer import ProgressWriter

        writer = ProgressWriter.open(who.resolve(*self._names), strict=self._strict)
        self._life = lifecycle.watch_over(writer)
        self._writer = writer
        # From now on without a detour: this is called once per step.
        self.step = writer.step  # type: ignore[method-assign]
        return writer

    def rename(self, job: str | None, rank: int | None, world_size: int | None) -> None:
        """Take what a later call of ``attach`` knows better."""
        told = tuple(
            new if new is not None else old
            for new, old in zip((job, rank, world_size), self._names, strict=True)
        )
        if told == self._names:
            return
        from ray_sentinel.progress.rank import who

        self._names = (told[0], told[1], told[2])  # type: ignore[assignment]
        if self._writer is not None:
            self._writer.identify(who.resolve(*self._names))
        elif rank is not None:
            self._open()

    def step(self, n: int | None = None, /, **scalars: SupportsFloat) -> None:
        """Step ``n`` has ended; ``scalars`` are shown and served. Costs about a microsecond."""
        self._record().step(n, **scalars)

    def phase(self, name: str) -> AbstractContextManager[Any]:
        """``with sentinel.phase("checkpoint"): ...``: what takes long on purpose is no hang."""
        return self._record().phase(name)

    def _record(self) -> ProgressWriter:
        """The writer; made now where ``attach`` could not know that this process trains."""
        if self._writer is None:
            return self._open()
        return self._writer

    @property
    def deployed(self) -> bool | None:
        """Whether the cluster is watched; None while that is being seen to."""
        return self._deployer.outcome if self._deployer else None

    @property
    def problems(self) -> tuple[str, ...]:
        """What is not watched, and why; what was also logged."""
        record = self._writer.problems if self._writer else ()
        return (*record, *(self._deployer.problems if self._deployer else ()))

    def wait(self, seconds: float = 30.0) -> bool:
        """Wait until the deployment has succeeded or failed. Trainings need not."""
        return self._deployer.wait(seconds) if self._deployer else False

    def status(self) -> Status:
        """Jobs, ranks, nodes and the verdict. Raises UnreachableError without a coordinator."""
        import ray_sentinel.report.notebook  # noqa: F401  a notebook shows it as a page
        from ray_sentinel.actors.deployment import deploy
        from ray_sentinel.model.status import Status

        return deploy.call(self._address(), "status", Status)

    def incidents(self) -> tuple[Incident, ...]:
        """All confirmed incidents, oldest first. Raises UnreachableError."""
        import ray_sentinel.report.notebook  # noqa: F401  a notebook shows them as pages
        from ray_sentinel.actors.deployment import deploy
        from ray_sentinel.model.incident import Incident

        return deploy.call(self._address(), "incidents", tuple[Incident, ...])

    def health(self, checkpoints: str | os.PathLike[str] | None = None) -> Health:
        """The cluster, its GPUs, the transport in use, and the checkpoints of a folder.

        Raises UnreachableError without a cluster, InputError for a folder that cannot be listed.
        """
        import ray_sentinel.report.notebook  # noqa: F401  a notebook shows it as a page
        from ray_sentinel.actors.coordinator.survey import ask_survey

        return ask_survey(self._address(), Path(checkpoints) if checkpoints is not None else None)

    def dump(self) -> tuple[Incident, ...]:
        """Capture stacks of this job's ranks now; the incidents name the folders.

        Raises UnreachableError.
        """
        from ray_sentinel.actors.deployment import deploy
        from ray_sentinel.model.incident import Incident

        job = self._writer.identity.job if self._writer else self.config.job
        return deploy.call(self._address(), "dump", tuple[Incident, ...], job)

    def _repr_html_(self) -> str:
        """What a notebook shows: verdict, jobs and the last incidents, or why there are none."""
        from ray_sentinel.model.status import Status
        from ray_sentinel.report.html import framed, status_html

        try:
            return framed(status_html(self.status(), self.incidents()))
        except (SentinelError, RuntimeError, OSError) as error:
            # A notebook shows a traceback for whatever else comes, in place of what was asked.
            return framed(status_html(Status(state="unknown", verdict=str(error))))

    def _address(self) -> str:
        return self._deployer.address if self._deployer else ""

    def detach(self) -> None:
        """Close the record; the cluster stays watched. ``attach`` may be called again."""
        global _current
        if self._deployer is not None:
            self._deployer.stop()
        if self._life is not None:
            self._life.end()
            self._life = None
        with _lock:
            if _current is self:
                _current = None


def _may_be_a_driver() -> bool:
    """A process that has Ray may be one that only starts the ranks: no record before a step."""
    return "ray" in sys.modules
