"""One training from its start to the verdict, on a cluster that is watched already."""

from __future__ import annotations

import contextlib
import signal
import time
from collections.abc import Callable
from pathlib import Path

import msgspec

from ray_sentinel.demo.catalogue import LIMITS
from ray_sentinel.demo.cluster import Machines
from ray_sentinel.demo.job import DemoJob
from ray_sentinel.demo.plan import TrialPlan
from ray_sentinel.demo.program import write_scripts
from ray_sentinel.demo.stage import Stage
from ray_sentinel.demo.trial_result import PlayedTrial, misjudged
from ray_sentinel.errors import SentinelError
from ray_sentinel.model.incident import Incident

BEGIN_SECONDS = 180.0
"""Seconds in which the trouble must have begun; each rank imports torch first, on however few
CPUs."""
HEALTHY_SECONDS = 150.0
"""Seconds that a training without a fault may take to end."""
LATE_SECONDS = 15.0
"""Seconds to wait beyond the limit, to tell a late answer from none."""
SETTLE_SECONDS = 4.0
"""Seconds to wait for wrong verdicts, after a verdict and after the end of a healthy job."""
REPORT_SECONDS = 90.0
"""Seconds that captures and the report may take after the verdict."""
PAUSE_SECONDS = 14.0
"""Seconds for which the ranks are stopped before they go on."""


class TrialOutcome(PlayedTrial, frozen=True, kw_only=True):
    """A played training."""

    plan: TrialPlan

    @property
    def named(self) -> list[int]:
        """The ranks that any incident accuses, ascending."""
        return accused(self.incidents)


def play(
    plan: TrialPlan, machines: Machines, stage: Stage, folder: Path, *, report: bool = False
) -> TrialOutcome:
    """Write the program, run it, wait for the verdict and end it.

    With ``report`` also wait for the bundle. Raises SentinelError if the training does not come
    to the place of the trouble.
    """
    write_scripts(folder, plan)
    job = DemoJob(machines.ray, machines.addresses, folder)
    stage.job = job.name
    try:
        job.start()
        began = _until_begun(plan, job, stage)
        complete: float | None = None
        if plan.expected.clock == "healthy":
            _run_healthy(plan, job, machines, stage)
        else:
            complete = _until_named(plan, stage, report=report)
        told = conclude(plan, stage.incidents(), began)
        if len(plan.ranks) > 1 and complete is not None and told.seconds is not None:
            # The first name may come before the last.
            seconds = max(told.seconds, round(complete - began, 2))
            told = msgspec.structs.replace(told, seconds=seconds)
        return msgspec.structs.replace(told, job=job.name)
    finally:
        job.close()


def conclude(plan: TrialPlan, incidents: list[Incident], began: float) -> TrialOutcome:
    """Compare the incidents of a trial with what its plan expects.

    ``began`` is the Unix time at which the fault began; the outcome's ``seconds`` count from then
    to the first confirmed incident.
    """
    first = incidents[0].confirmed_at if incidents else None
    return TrialOutcome(
        plan=plan,
        incidents=tuple(incidents),
        began=began,
        seconds=None if first is None else round(first - began, 2),
        wrong=judge(plan, incidents),
    )


def accused(incidents: tuple[Incident, ...] | list[Incident]) -> list[int]:
    """The ranks that any of the verdicts names."""
    verdicts = [incident.verdict for incident in incidents if incident.verdict is not None]
    return sorted({c.rank for verdict in verdicts for c in verdict.culprits if c.rank is not None})


def judge(plan: TrialPlan, incidents: list[Incident]) -> str:
    """What is wrong with the incidents, held against what was drawn; empty if nothing is."""
    row, named = plan.expected, accused(incidents)
    wrong = misjudged(incidents, row.clock == "healthy", row.kinds)
    if len(incidents) == 1 and row.clock != "healthy":
        if incidents[0].verdict is None:
            return "there is no verdict"
        if named != plan.ranks:
            return f"it names {named}"
    return wrong


def _until_begun(plan: TrialPlan, job: DemoJob, stage: Stage) -> float:
    """Wait for the trouble, or the first step of a healthy training; when it came, as Unix time.
    Raises SentinelError if it does not come."""
    how = "attached" if plan.attach else "the script knows nothing of ray_sentinel"
    note = f"{plan.world} ranks train over gloo on three nodes ({how}); {outlook(plan)}"
    deaths: dict[int, int] = {}

    def ready() -> bool:
        deaths.update(job.ended())
        return job.began() is not None or bool(deaths)

    stage.until(BEGIN_SECONDS, note, ready)
    began = job.began()
    if began is None:
        raise SentinelError(f"the training did not come to its trouble: {_last_words(job, deaths)}")
    return began


def outlook(plan: TrialPlan) -> str:
    """What is known beforehand, in words: how many ranks will get stuck, not which."""
    if plan.expected.clock == "healthy":
        return "nothing will go wrong"
    count = {0: "all", 1: "one"}.get(len(plan.ranks), str(len(plan.ranks)))
    return f"{count} will get stuck"


def _last_words(job: DemoJob, deaths: dict[int, int]) -> str:
    return "; ".join(
        f"rank {rank} ended with status {code}: {' / '.join(job.last_lines(rank))}"
        for rank, code in sorted(deaths.items())[:2]
    )


def _until_named(plan: TrialPlan, stage: Stage, *, report: bool) -> float | None:
    """Wait until all culprits are named. Returns when they were first seen to be, as Unix time;
    None if they never were."""
    limit = LIMITS[plan.expected.clock] + LATE_SECONDS
    note = "something has gone wrong; waiting for the verdict"
    if not stage.until(limit, note, lambda: _complete(plan, stage)):
        return None
    complete = time.time()
    note = "there is a verdict; collecting evidence for the report"
    _for(stage, SETTLE_SECONDS, note)
    if report:
        stage.until(REPORT_SECONDS, note, lambda: all(i.bundle for i in stage.incidents()))
    return complete


def _complete(plan: TrialPlan, stage: Stage) -> bool:
    """Whether there is a verdict, and it names as many as it should."""
    incidents = stage.incidents()
    return bool(incidents) and len(accused(incidents)) >= len(plan.ranks)


def _run_healthy(plan: TrialPlan, job: DemoJob, machines: Machines, stage: Stage) -> None:
    """Wait until a training without a fault has ended, and a little longer. Raises SentinelError if
    it fails or does not end in time."""
    note = f"a healthy training: {plan.expected.what}"
    INTERLUDES.get(plan.fault, _nothing)(job, machines, stage, note)
    if not stage.until(HEALTHY_SECONDS, note, lambda: len(job.ended()) >= job.world):
        raise SentinelError("the healthy training did not end in time")
    if failed := {rank: code for rank, code in job.ended().items() if code}:
        raise SentinelError(f"the healthy training failed: {_last_words(job, failed)}")
    _for(stage, SETTLE_SECONDS, note)


def _nothing(job: DemoJob, machines: Machines, stage: Stage, note: str) -> None:
    """Nothing: the program does by itself what its plan says."""


def _pause(job: DemoJob, machines: Machines, stage: Stage, note: str) -> None:
    job.signal(signal.SIGSTOP)
    _for(stage, PAUSE_SECONDS, note)
    job.signal(signal.SIGCONT)


def _restart(job: DemoJob, machines: Machines, stage: Stage, note: str) -> None:
    _end_all(job, stage, note)
    job.start()


def _resize(job: DemoJob, machines: Machines, stage: Stage, note: str) -> None:
    _end_all(job, stage, note)
    job.world = 6 if job.world == 8 else 8
    job.start()


def _end_all(job: DemoJob, stage: Stage, note: str) -> None:
    """Ask all ranks to end, and wait until they have. Raises SentinelError if they do not."""
    job.signal(signal.SIGTERM)
    if not stage.until(30, note, lambda: len(job.ended()) >= job.world):
        raise SentinelError("the ranks do not end when they are asked to")


def _join(job: DemoJob, machines: Machines, stage: Stage, note: str) -> None:
    with contextlib.ExitStack() as stack:
        stack.enter_context(machines.guest())
        _for(stage, 12, note)


INTERLUDES: dict[str, Callable[[DemoJob, Machines, Stage, str], None]] = {
    "pause": _pause,
    "restart": _restart,
    "resize": _resize,
    "join": _join,
}


def _for(stage: Stage, seconds: float, note: str) -> None:
    end = time.monotonic() + seconds
    stage.until(seconds + 5, note, lambda: time.monotonic() > end)
