"""Work that may hang, done in threads: then only its answer is missing."""

from __future__ import annotations

import threading
from collections.abc import Callable

from ray_sentinel.clock import Clock, Moment, moment
from ray_sentinel.errors import SentinelError
from ray_sentinel.supervise.events import Cleared, EvidenceSecured, Offered, SupervisorEvent


class Aside:
    """Does each work once at a time, and hands its answer to ``answer``, from that thread, with the
    attempt that it is about: it may come when that one is long over."""

    def __init__(
        self,
        answer: Callable[[int, SupervisorEvent], None],
        say: Callable[[str], None],
        clock: Clock,
    ) -> None:
        self._answer, self._say, self._clock = answer, say, clock
        self._busy: set[str] = set()

    def do(self, what: str, attempt: int, work: Callable[[], SupervisorEvent | None]) -> None:
        """Do it, unless it is being done."""
        if what in self._busy:
            return
        self._busy.add(what)

        def go() -> None:
            event: SupervisorEvent | None = None
            try:
                event = work()
            except (SentinelError, OSError) as error:
                self._say(f"{what}: {error}")
                event = _fallback(what, moment(self._clock), str(error))
            finally:
                self._busy.discard(what)
                if event is not None:
                    self._answer(attempt, event)

        threading.Thread(target=go, name=f"ray-sentinel-{what}", daemon=True).start()


def _fallback(what: str, now: Moment, problem: str) -> SupervisorEvent | None:
    """The answer for a course that waits for one."""
    if what == "choose":
        return Offered(time=now, problem=problem)
    if what == "clear":
        return Cleared(time=now, problem=problem)
    return EvidenceSecured(time=now) if what == "capture" else None
