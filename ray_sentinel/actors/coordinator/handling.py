"""The engine's answer to one event, live and in a replay."""

from __future__ import annotations

import logging

from ray_sentinel.engine.actions import AnyAction
from ray_sentinel.engine.engine import Engine
from ray_sentinel.engine.events import AnyEvent

log = logging.getLogger(__name__)


def handled(engine: Engine, event: AnyEvent) -> tuple[list[AnyAction], str]:
    """What is to be done, and what went wrong; empty where nothing did."""
    try:
        actions = engine.handle(event)
    except Exception as error:  # a rule's mistake must not end the watch, nor keep it from starting
        log.exception("the engine failed on %s", type(event).__name__)
        return [], f"the engine failed on {type(event).__name__} ({type(error).__name__}: {error})"
    for part, failed in engine.failures.take_new().items():
        log.error("the engine failed in %s", part, exc_info=failed)
        failed.__traceback__ = None  # it would keep all that was known then
    return actions, ""
