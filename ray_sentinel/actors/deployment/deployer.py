"""The thread in a training process that takes care of the deployment. It defers heavy imports."""

from __future__ import annotations

import itertools
import logging
import threading
import time

from ray_sentinel.backoff import Backoff
from ray_sentinel.config import Config

log = logging.getLogger("ray_sentinel")

RETRY = Backoff(first=5.0, most=60.0)
GIVE_UP_SECONDS = 900.0
"""Seconds after which no further attempt to deploy is made."""
BEGIN_SECONDS = 0.05
"""Seconds before the first attempt: its imports take the interpreter lock, and ``attach()`` is to
return."""


class Deployer:
    """Makes sure that the cluster is watched. ``outcome`` is None until the result is known."""

    def __init__(self, config: Config) -> None:
        self._config = config
        self._done = threading.Event()
        self._stop = threading.Event()
        self.outcome: bool | None = None
        self.problems: tuple[str, ...] = ()
        self.address = ""
        """The address of the cluster to which this process belongs; empty while it is not known."""

    def start(self) -> None:
        """Begin, on a daemon thread."""
        threading.Thread(target=self._run, name="ray-sentinel-deploy", daemon=True).start()

    def stop(self) -> None:
        """Make no further attempt."""
        self._stop.set()

    def wait(self, seconds: float) -> bool:
        """Wait until the first attempt has ended. Returns whether the cluster is watched."""
        self._done.wait(seconds)
        return bool(self.outcome)

    def _run(self) -> None:
        begun = time.monotonic()
        if self._stop.wait(BEGIN_SECONDS):
            return
        for failures in itertools.count(1):
            try:
                self._attempt()
            except Exception as error:  # a daemon thread of a training: log it, and go on
                log.debug("deployment failed", exc_info=True)
                self._set_outcome(False, (f"{type(error).__name__}: {error}",))
            if self.outcome or time.monotonic() - begun > GIVE_UP_SECONDS:
                return
            if self._stop.wait(RETRY.delay(failures)):
                return

    def _attempt(self) -> None:
        # Imported here: the caller of attach() does not wait for it.
        from ray_sentinel.actors.deployment import background

        self.address = background.own_address()
        self._set_outcome(*background.attempt(self._config, self.address))

    def _set_outcome(self, outcome: bool, problems: tuple[str, ...]) -> None:
        for problem in problems:
            if problem not in self.problems:
                log.warning("ray_sentinel: %s", problem)
        self.outcome, self.problems = outcome, problems
        self._done.set()
