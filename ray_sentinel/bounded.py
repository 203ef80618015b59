"""Calls that may never return, each in a thread of its own under a deadline.

A read from a dead NFS server or a wedged driver leaves its thread in D state, where nothing can end
it. The caller goes on without it; the same call is not made again before the thread is back, and
the number of such threads is bounded.
"""

from __future__ import annotations

import errno
import threading
import time
from collections.abc import Callable, Hashable, Mapping
from contextlib import ExitStack
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


def within(seconds: float, work: Callable[[], V]) -> V:
    """What ``work`` returns; raises what it raises, or TimeoutError if that takes longer.

    Its thread goes on then: it is for calls that are made once, at a start or at an end.
    """
    told: list[V] = []
    raised: list[BaseException] = []

    def keep(_kind: object, error: BaseException | None, _traceback: object) -> bool:
        raised.extend([error] if error is not None else [])
        return True

    def run() -> None:
        with ExitStack() as stack:
            stack.push(keep)
            told.append(work())

    thread = threading.Thread(target=run, name="ray-sentinel-within", daemon=True)
    thread.start()
    thread.join(seconds)
    if raised:
        raise raised[0]
    if told:
        return told[0]
    raise TimeoutError(errno.ETIMEDOUT, f"no answer within {seconds:g} s")


class _Call(Generic[V]):
    def __init__(self, work: Callable[[], V]) -> None:
        self.value: V | None = None
        self.error: OSError | None = None
        self.ended = threading.Event()
        self._work = work
        # A daemon: a thread that never returns must not keep the process from ending.
        threading.Thread(target=self._run, name="ray-sentinel-bounded", daemon=True).start()

    def _run(self) -> None:
        try:
            self.value = self._work()
        except OSError as error:
            self.error = error
        finally:
            self.ended.set()


class Bounded(Generic[K, V]):
    """Makes calls side by side, at most ``most`` at one time, each given ``seconds``."""

    def __init__(self, seconds: float, most: int = 8) -> None:
        self.seconds = seconds
        self.most = most
        self.stuck: dict[K, _Call[V]] = {}

    def run(self, work: Mapping[K, Callable[[], V]]) -> tuple[dict[K, V], dict[K, str]]:
        """What came back in time, and for each other key why there is nothing.

        A call that hung before and still hangs is not made again.
        """
        self.stuck = {key: call for key, call in self.stuck.items() if not call.ended.is_set()}
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
        calls = {key: _Call(function) for key, function in work.items()}
        for key, call in calls.items():
            if not self.ended_within(key, call, max(0.0, end - time.monotonic())):
                self.stuck[key] = call
                failures[key] = f"did not return within {self.seconds:g} s"
            elif call.error is not None:
                failures[key] = call.error.strerror or str(call.error)
            elif call.value is None:
                failures[key] = "failed"
            else:
                values[key] = call.value

    def ended_within(self, key: K, call: _Call[V], seconds: float) -> bool:
        """Wait at most ``seconds`` for the call of that key; whether it has ended."""
        return call.ended.wait(seconds)
