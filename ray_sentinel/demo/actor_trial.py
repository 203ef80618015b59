"""One job of actors from its start to the verdict, on a cluster that is watched already."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from ray_sentinel import process
from ray_sentinel.demo.actor_job import ActorJob
from ray_sentinel.demo.actor_plan import ActorTrialPlan
from ray_sentinel.demo.cluster import Machines
from ray_sentinel.demo.stage import Stage
from ray_sentinel.demo.trial_result import PlayedTrial, misjudged
from ray_sentinel.errors import SentinelError
from ray_sentinel.model.incident import Incident
from ray_sentinel.model.status import Status

BEGIN_SECONDS = 180.0
"""Seconds in which the trouble must have begun."""
LATE_SECONDS = 15.0
"""Seconds to wait beyond the limit, to tell a late answer from none."""
SLOW_SECONDS = 40.0
"""Seconds for which a job is watched whose trouble need not be reported."""
END_SECONDS = 120.0
"""Seconds that a healthy job may take to end, beyond the work that it has to do."""
SETTLE_SECONDS = 5.0
"""Seconds to wait for wrong verdicts, after a verdict and after the end of a healthy job."""
REPORT_SECONDS = 60.0
"""Seconds that the evidence of an incident may take."""
CLI_SECONDS = 60.0
"""Seconds that a command of the sentinel may take."""
WELL = "is well"
"""Part of a verdict which says that a job goes on."""


class ActorTrialOutcome(PlayedTrial, frozen=True, kw_only=True):
    """A played job of actors."""

    plan: ActorTrialPlan
    named: tuple[str, ...] = ()
    """All members that any incident accuses; "pid 17" for a process that is not a member."""
    well: str = ""
    """A verdict which said that all is well while the job stood still; empty if there was none."""


class TrialScope(msgspec.Struct, frozen=True, kw_only=True):
    """What distinguishes the incidents of one trial from those of others on the machine: they are
    named after its programs, or are about its processes. Because two trials may draw the same name,
    incidents from before the trial are not its own."""

    since: float
    """Unix time at which the trial began."""
    names: frozenset[str]
    """Names of the jobs that the trial's ranks form."""
    scripts: tuple[str, ...]
    pids: frozenset[int]

    def has(self, incident: Incident) -> bool:
        """Whether this one is of the trial."""
        if incident.suspected_at < self.since:
            return False
        if incident.job in self.names:
            return True
        if any(incident.job.startswith(f"{script}-") for script in self.scripts):
            return True
        culprits = incident.verdict.culprits if incident.verdict else ()
        concerned = {culprit.pid for culprit in culprits}
        concerned |= {process.pid for process in incident.processes.values()}
        return bool(concerned & self.pids)


class ActorTrial:
    """Plays one plan."""

    def __init__(
        self,
        plan: ActorTrialPlan,
        machines: Machines,
        stage: Stage,
        folder: Path,
        plain: Mapping[str, str] | None = None,
    ) -> None:
        """``plain`` are names to use in the program as they are; all others are made up."""
        self._plan, self._machines, self._stage = plan, machines, stage
        self._job = ActorJob(plan, machines, folder, plain)
        self._second: ActorJob | None = None
        if plan.fault == "two-jobs":
            other = folder / "second"
            other.mkdir()
            drawn = msgspec.structs.replace(plan, seed=plan.seed + 1)
            self._second = ActorJob(drawn, machines, other)
        self._started = time.time()
        self._names: set[str] = set()
        """Names of the jobs that its ranks form."""
        self._well = ""

    def play(self, *, report: bool = False) -> ActorTrialOutcome:
        """Run up to the verdict, and a little longer. Raises SentinelError if it comes to
        nothing."""
        self._started = time.time()
        try:
            self._job.start()
            if self._second is not None:
                self._second.start()
            began = self._until_begun()
            if self._plan.clock == "healthy":
                self._run_healthy()
            else:
                self._until_named(began, report=report)
            began = self._job.began() or began
            return self._outcome(began)
        finally:
            for job in self._jobs():
                job.close()

    def _until_begun(self) -> float:
        """Wait for the trouble, or until a healthy job is in its stride; when it came, as Unix
        time. Raises SentinelError if it does not come."""
        plan = self._plan
        note = f"a job of actors runs ({plan.layout}); {plan.expected.what}"
        steady = plan.clock == "healthy"

        def ready() -> bool:
            self._job.tend()
            found = self._job.began() or (self._job.noted("steady") if steady else None)
            return found is not None or self._job.ended() is not None

        self._stage.until(BEGIN_SECONDS, note, ready)
        began = self._job.began() or (self._job.noted("steady") if steady else None)
        if began is None:
            raise SentinelError(f"it did not come to its trouble: {self._job.last_lines()}")
        return began

    def _until_named(self, began: float, *, report: bool) -> None:
        """Wait for a verdict, and a little longer; with ``report`` also for the evidence."""
        limit = self._plan.limit
        patience = SLOW_SECONDS if limit is None else limit + LATE_SECONDS
        note = f"{self._plan.expected.what}; waiting for the verdict"

        def ready() -> bool:
            self._job.tend()
            self._note_all_is_well(self._stage.status, self._job.began() or began)
            return bool(limit is not None and self._confirmed())

        if not self._stage.until(patience, note, ready) or limit is None:
            return
        self._poll_for(SETTLE_SECONDS, "there is a verdict")
        if report:
            self._stage.until(
                REPORT_SECONDS,
                "collecting evidence",
                lambda: all(i.bundle for i in self._reported()),
            )

    def _run_healthy(self) -> None:
        """Wait until a job without a fault has ended, or has run for its time. Raises SentinelError
        if it fails."""
        plan = self._plan
        note = f"a healthy job: {plan.expected.what}"
        if plan.how.startswith("end-") or plan.layout == "quiet":
            seconds = plan.seconds + END_SECONDS
            if not self._stage.until(seconds, note, lambda: self._job.ended() is not None):
                raise SentinelError("the healthy job did not end in time")
            if self._job.ended():
                raise SentinelError(f"the healthy job failed: {self._job.last_lines()}")
        else:
            self._poll_for(plan.seconds, note)
            if self._job.ended() is not None:
                raise SentinelError(f"the healthy job ended: {self._job.last_lines()}")
            for job in self._jobs():
                job.stop()
        self._poll_for(SETTLE_SECONDS, note)

    def _poll_for(self, seconds: float, note: str) -> None:
        end = time.monotonic() + seconds

        def ready() -> bool:
            self._job.tend()
            self._reported()
            return time.monotonic() > end

        self._stage.until(seconds + 5, note, ready)

    def _note_all_is_well(self, status: Status | None, began: float) -> None:
        """Note a status that says that all is well after the limit, while the job stands still.
        There is no such job after the driver's end."""
        limit = self._plan.limit
        late = limit is not None and status is not None and status.time > began + limit
        if late and status is not None and not self._well and self._job.ended() is None:
            self._well = status.verdict if WELL in status.verdict else ""

    def _reported(self) -> list[Incident]:
        """The confirmed incidents of this trial."""
        pids = {pid for job in self._jobs() for pid in job.members()}
        if (status := self._stage.status) is not None:
            self._names |= {
                job.job for job in status.jobs if any(rank.pid in pids for rank in job.ranks)
            }
        scope = TrialScope(
            since=self._started,
            names=frozenset(self._names),
            scripts=tuple(job.script for job in self._jobs()),
            pids=frozenset(pids),
        )
        return [one for one in self._stage.all_incidents() if scope.has(one)]

    def _jobs(self) -> list[ActorJob]:
        return [job for job in (self._job, self._second) if job is not None]

    def _confirmed(self) -> bool:
        return any(incident.confirmed_at for incident in self._reported())

    def _outcome(self, began: float) -> ActorTrialOutcome:
        """How it went, judged by what users' commands print."""
        ids = {incident.id for incident in self._reported() if incident.kind != "asked"}
        told = msgspec.convert(ask_command(self._machines, "incidents"), list[Incident])
        incidents = [one for one in told if one.id in ids and one.confirmed_at]
        incidents.sort(key=lambda one: one.confirmed_at or 0.0)
        members = self._job.members()
        named = accused(incidents, members)
        healthy = self._plan.clock == "healthy"
        if not healthy and not self._well:
            answer = ask_command(self._machines, "status")
            status = msgspec.convert(answer, type=Status, strict=False)
            self._note_all_is_well(status, began)
        wrong = judge_actors(self._plan, incidents, named)
        if not wrong and self._well:
            wrong = f"it says of a job that stands still: {self._well}"
        first = incidents[0].confirmed_at if incidents else None
        return ActorTrialOutcome(
            plan=self._plan,
            job=incidents[0].job if incidents else self._job.script,
            incidents=tuple(incidents),
            named=tuple(named),
            began=began,
            seconds=None if first is None else round(first - began, 2),
            well=self._well,
            wrong=wrong,
        )


def ask_command(machines: Machines, what: str) -> Any:
    """What ``ray-sentinel WHAT --json`` prints. Raises SentinelError if it prints nothing."""
    command = process.python_module(
        "ray_sentinel.cli.main", what, "--json", f"--address={machines.gcs_address}"
    )
    done = process.run(command, deadline=CLI_SECONDS)
    try:
        return msgspec.json.decode(done.stdout)
    except msgspec.DecodeError:
        raise SentinelError(f"ray-sentinel {what}: {done.explain()}") from None


def accused(incidents: Sequence[Incident], members: Mapping[int, str]) -> list[str]:
    """The members that any of the incidents names; anything else is given by its pid or label."""
    verdicts = [incident.verdict for incident in incidents if incident.verdict is not None]
    culprits = [culprit for verdict in verdicts for culprit in verdict.culprits]
    strangers = {one: f"pid {one.pid} on {one.host}" if one.pid else one.host for one in culprits}
    return sorted({members.get(one.pid or 0, strangers[one]) for one in culprits})


def judge_actors(plan: ActorTrialPlan, incidents: Sequence[Incident], named: Sequence[str]) -> str:
    """What is wrong with the incidents, held against what was drawn; empty if nothing is."""
    if plan.clock == "slow" and not incidents:
        return ""
    wrong = misjudged(incidents, plan.clock == "healthy", plan.kinds)
    if len(incidents) == 1 and plan.clock != "healthy" and frozenset(named) not in plan.accused:
        return f"it names {list(named)}"
    return wrong
