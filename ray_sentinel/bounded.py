"""Calls that may never return, each in a thread of its own under a deadline.

A read from a dead NFS server or a wedged driver leaves its thread in D state, where nothing can end
it. The caller goes on without it; the same call is not made again before the thread is back, and
the number of such threads is bounded.
"""

from __future__ import annotations

import errno
import logging
import threading
import time
from collections.abc import Callable, Hashable, Mapping
from concurrent.futures import Future, wait
from contextlib import ExitStack
from typing import Generic, TypeVar

log = logging.getLogger(__name__)

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


def in_background(work: Callable[[], V], name: str) -> Future[V]:
    """What ``work`` returns or raises, from a thread of that name that nobody waits for when the
    program ends: an executor's would keep it from ending."""
    call: Future[V] = Future()
    call.set_running_or_notify_cancel()

    def keep(_kind: object, error: BaseException | None, _traceback: object) -> bool:
        if error is not None:
            call.set_exception(error)
        return True

    def run() -> None:
        with ExitStack() as stack:
            stack.push(keep)
            call.set_result(work())

    threading.Thread(target=run, name=name, daemon=True).start()
    return call


def within(seconds: float, work: Callable[[], V]) -> V:
    """What ``work`` returns; raises what it raises, or TimeoutError if that takes longer.

    Its thread goes on then: it is for calls that are made once, at a start or at an end.
    """
    call = in_background(work, "ray-sentinel-within")
    if not wait([call], seconds).done:
        raise TimeoutError(errno.ETIMEDOUT, f"no answer within {seconds:g} s")
    return call.result()


class Bounded(Generic[K, V]):
    """Makes calls side by side, at most ``most`` at one time, each given ``seconds``."""

    def __init__(self, seconds: float, most: int = 8) -> None:
        self.seconds = seconds
        self.most = most
        self.stuck: dict[K, Future[V]] = {}

    def run(self, work: Mapping[K, Callable[[], V]]) -> tuple[dict[K, V], dict[K, str]]:
        """What came back in time, and for each other key why there is nothing.

        A call that hung before and still hangs is not made again.
        """
        self.stuck = {key: call for key, call in self.stuck.items() if not call.done()}
        values: dict[K, V] = {}
        failures = {
            key: "an earlier read has not returned yet" for key in work if key in self.stuck
        }
        waiting = [key for key in work if key not in failures]
        while waiting:
            room = self.most - len(self.stuck)
            if room <= 0:
                why = f"{self.most} reads hang already; no more are started"
                failures.update(dict.fromkeys(waiting, why))
                break
            batch, waiting = waiting[:room], waiting[room:]
            self._batch({key: work[key] for key in batch}, values, failures)
        return values, failures

    def _batch(
        self, work: Mapping[K, Callable[[], V]], values: dict[K, V], failures: dict[K, str]
    ) -> None:
        end = time.monotonic() + self.seconds
        calls = {key: in_background(call, "ray-sentinel-bounded") for key, call in work.items()}
        for key, call in calls.items():
            if not self.ended_within(key, call, max(0.0, end - time.monotonic())):
                self.stuck[key] = call
                failures[key] = f"did not return within {self.seconds:g} s"
            elif isinstance(error := call.exception(), OSError):
                failures[key] = error.strerror or str(error)
            elif error is not None:
                log.error("a call of %s failed", key, exc_info=error)
                failures[key] = "failed"
            else:
                values[key] = call.result()

    def ended_within(self, key: K, call: Future[V], seconds: float) -> bool:
        """Wait at most ``seconds`` for the call of that key; whether it has ended."""
        return bool(wait([call], seconds).done)
