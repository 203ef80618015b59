"""The coordinator asked over and over on a thread of its own, so that the screen never waits."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable

import msgspec

from ray_sentinel.cli.open_incidents import ASKED_EVERY, DEADLINE
from ray_sentinel.cli.reach import Asked
from ray_sentinel.errors import SentinelError
from ray_sentinel.model.incident import Incident
from ray_sentinel.model.last_hour import PulseReport
from ray_sentinel.model.status import Status
from ray_sentinel.text import one_line

PULSE_EVERY = 10.0
"""Seconds between two questions for the pulse, which has one point for each such span."""


class SeenStatus(msgspec.Struct, frozen=True, kw_only=True):
    """The last answer, and why later questions had none."""

    status: Status | None = None
    incidents: tuple[Incident, ...] = ()
    pulse: PulseReport | None = None
    """The last hour of the jobs; None if the coordinator has not sent it yet, or is too old to have
    one."""
    at: float = 0.0
    """Time at which the status came, by ``time.monotonic``."""
    error: str = ""
    """Why the last question had no answer; empty if it had one."""


class StatusAsker:
    """Asks through one connection; ``seen`` may be read from any thread at any time."""

    def __init__(
        self, found: Asked, interval: float = 1.0, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._found, self._interval, self._clock = found, interval, clock
        self._incidents_at: float | None = None
        self._pulse_at: float | None = None
        self._state = ""
        self._due = threading.Event()
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._run, name="status-asker", daemon=True)
        self.seen = SeenStatus()

    def start(self) -> None:
        """Begin to ask."""
        self._thread.start()

    def hurry(self) -> None:
        """Ask now, for all of it."""
        self._incidents_at = self._pulse_at = None
        self._due.set()

    def close(self, seconds: float = 1.0) -> None:
        """Stop asking; an answer that is still awaited is given ``seconds``."""
        self._closed.set()
        self._due.set()
        if self._thread.is_alive():
            self._thread.join(seconds)

    def ask_once(self) -> None:
        """Ask once. Does not raise without an answer: ``seen`` says why, beside the last one."""
        try:
            self.seen = self._asked()
        except SentinelError as error:
            self._missed(str(error))
        except failures() as error:
            self._missed(f"{type(error).__name__}: {error}")

    def _run(self) -> None:
        while not self._closed.is_set():
            self.ask_once()
            self._due.wait(self._interval)
            self._due.clear()

    def _asked(self) -> SeenStatus:
        """The status, and the incidents where they are due or the state has changed."""
        status = self._found.ask("status", Status, seconds=DEADLINE)
        now = self._clock()
        due = self._incidents_at is None or now - self._incidents_at >= ASKED_EVERY
        incidents = self.seen.incidents
        if due or status.state != self._state:
            incidents = self._found.ask("incidents", tuple[Incident, ...], seconds=DEADLINE)
            self._incidents_at, self._state = now, status.state
        return SeenStatus(status=status, incidents=incidents, pulse=self._pulse(now), at=now)

    def _pulse(self, now: float) -> PulseReport | None:
        """The pulse, asked for if it is due. Without an answer, the last one stays."""
        if self._pulse_at is not None and now - self._pulse_at < PULSE_EVERY:
            return self.seen.pulse
        self._pulse_at = now
        try:
            return self._found.ask("pulse", PulseReport, seconds=DEADLINE)
        except failures():
            return self.seen.pulse

    def _missed(self, why: str) -> None:
        self.seen = msgspec.structs.replace(self.seen, error=one_line(why, 300) or "no answer")
        try:
            self._found.renew()
        except SentinelError:
            pass  # reported already: it is not there
        except failures() as error:
            self.seen = msgspec.structs.replace(self.seen, error=one_line(str(error), 300))


def failures() -> tuple[type[Exception], ...]:
    """What asking may raise: our own errors and Ray's, and what follows from an older coordinator
    without that call, an answer that does not decode, or a lost connection."""
    ours = (SentinelError, AttributeError, msgspec.MsgspecError, RuntimeError, ValueError, OSError)
    if "ray" not in sys.modules:  # it is not needed where the page is asked (--url)
        return ours
    from ray.exceptions import RayError

    return (*ours, RayError)
