"""What a check is. One check a file; a user's own are made the same way.

    from ray_sentinel.doctor.check import Check, failure, ok

    class Facts(msgspec.Struct):
        mounted: bool

    class DataIsMounted(Check[Facts]):
        name = "data-mounted"
        about = "the data set is mounted"
        facts = Facts

        def look(self, plan, here):
            return Facts(mounted=os.path.ismount("/data"))

        def judge(self, case):
            for host, facts in case.seen.items():
                if facts.mounted:
                    yield ok("/data is mounted", host)
                else:
                    yield failure("/data is not mounted", "mount /data", host)

``look`` runs on every node, in a process of ours, under a deadline; it may do input and output and
must change nothing. ``judge`` runs once, where the doctor was called, and sees all nodes' facts.
"""

from __future__ import annotations

import abc
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, ClassVar, Generic, Literal, TypeVar

import msgspec

from ray_sentinel.clock import Clock, SystemClock
from ray_sentinel.doctor.collective import Reduced
from ray_sentinel.doctor.plan import RunPlan

Outcome = Literal["ok", "warning", "failure", "skipped"]
WORST_FIRST: tuple[Outcome, ...] = ("failure", "warning", "ok", "skipped")
"""What is wrong comes first: of 22 checks most have nothing to look at on most clusters."""

F = TypeVar("F", bound=msgspec.Struct)


class Here(msgspec.Struct, frozen=True, kw_only=True):
    """The node that a check examines; roots and clock are injected, so that tests can replace
    them."""

    host: str
    address: str = ""
    """The node's name in Ray; empty without Ray."""
    environ: Mapping[str, str] = {}
    """The environment variables that a rank started on this node would have."""
    proc: Path = Path("/proc")
    sys: Path = Path("/sys")
    shm: Path = Path("/dev/shm")
    clock: Clock = SystemClock()


class CheckResult(msgspec.Struct, frozen=True, kw_only=True):
    """One line of the doctor's answer."""

    check: str = ""
    outcome: Outcome
    seen: str
    """What was found, as a sentence."""
    remedy: str = ""
    """The command or setting that fixes it; empty if nothing needs fixing."""
    host: str = ""
    """The host concerned; empty if it concerns all nodes."""


class Joined(msgspec.Struct, frozen=True, kw_only=True):
    """A node of the Ray cluster."""

    id: str
    host: str
    address: str
    gpus: float = 0.0
    is_head: bool = False


class Cluster(msgspec.Struct, frozen=True, kw_only=True):
    """What Ray reports about the cluster."""

    address: str
    joined: tuple[Joined, ...] = ()
    free_gpus: float = 0.0
    """GPUs that nobody has reserved."""
    dead: tuple[str, ...] = ()
    """Nodes that Ray lists as dead, with the reason."""


class ProbeResult(msgspec.Struct, frozen=True, kw_only=True):
    """One node's attempt to reach another."""

    visitor: str
    host: str
    place: str
    """Where it was probed, as ``address:port``."""
    problem: str = ""
    seconds: float | None = None
    """Seconds of the fastest round trip; None if there was none."""
    ahead: float | None = None
    """Seconds by which the probed node's clock is ahead of the prober's, within half a round
    trip."""


class CheckInput(msgspec.Struct, Generic[F], frozen=True, kw_only=True):
    """Everything that a check is judged by."""

    plan: RunPlan
    seen: Mapping[str, F]
    """What each node's ``look`` found, by host; nodes that had nothing to look at are absent."""
    cluster: Cluster | None = None
    """The Ray cluster; None if only this machine was examined."""
    visits: tuple[ProbeResult, ...] = ()
    reduced: tuple[Reduced, ...] = ()
    """How each node's part in the sum over all nodes went; empty if no sum was made."""


class Check(abc.ABC, Generic[F]):
    """Base of all checks."""

    name: ClassVar[str] = ""
    about: ClassVar[str] = ""
    """The condition that must hold, in a few words."""
    everywhere: ClassVar[bool] = True
    """Whether every node is examined; if False, only the one where the doctor was called."""
    facts: type[F]
    """What ``look`` returns."""

    @abc.abstractmethod
    def look(self, plan: RunPlan, here: Here) -> F | None:
        """The facts of this node; None if there is nothing to look at."""

    @abc.abstractmethod
    def judge(self, case: CheckInput[F]) -> Iterable[CheckResult]:
        """What the facts of all nodes mean."""


class JointCheck(Check[Any]):
    """Base of those that judge only what the nodes do together after all have looked."""

    def look(self, plan: RunPlan, here: Here) -> None:
        """Nothing to look at."""


def ok(seen: str, host: str = "") -> CheckResult:
    """All is well."""
    return CheckResult(outcome="ok", seen=seen, host=host)


def warning(seen: str, remedy: str, host: str = "") -> CheckResult:
    """The run may work, and may not."""
    return CheckResult(outcome="warning", seen=seen, remedy=remedy, host=host)


def failure(seen: str, remedy: str, host: str = "") -> CheckResult:
    """The run cannot work like this."""
    return CheckResult(outcome="failure", seen=seen, remedy=remedy, host=host)


def skipped(seen: str) -> CheckResult:
    """Nothing to check here: says why."""
    return CheckResult(outcome="skipped", seen=seen)
