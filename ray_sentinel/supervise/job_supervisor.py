"""Supervises a job of ``ray job submit``: watches and restarts it through Ray's job API."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from ray_sentinel.clock import Clock, KeptMoment, Moment, SystemClock, moment
from ray_sentinel.errors import SentinelError, UnreachableError
from ray_sentinel.supervise import actions, events
from ray_sentinel.supervise.actions import RunResult, SupervisorAction
from ray_sentinel.supervise.attempt.movement import AttemptMovement
from ray_sentinel.supervise.checkpoint_choice import Choice, choose
from ray_sentinel.supervise.checkpoints import lost
from ray_sentinel.supervise.events import SupervisorEvent
from ray_sentinel.supervise.parts import JobParts, Sighting
from ray_sentinel.supervise.policy import Failure, Policy, ResumePoint
from ray_sentinel.supervise.ray_jobs import Jobs, new_id
from ray_sentinel.supervise.restart_state_machine import RestartStateMachine, SupervisionState
from ray_sentinel.supervise.task import JobTask

OUT_OF_REACH_SECONDS = 300.0
"""Seconds after which a dashboard that does not answer is given up; the job may run on."""


class JobSupervisor:
    """Supervises one submitted job, and the jobs that replace it. ``run`` blocks."""

    def __init__(
        self,
        jobs: Jobs,
        task: JobTask,
        policy: Policy,
        parts: JobParts,
        *,
        clock: Clock | None = None,
    ) -> None:
        self._jobs, self._task, self._policy, self._parts = jobs, task, policy, parts
        self.job_id = task.job_id
        self._clock = clock or SystemClock()
        self._attempt_began = KeptMoment(self._clock)
        self._first = jobs.job(task.job_id)
        ledger = SupervisionState(attempt=self._first.attempt, retries_left=policy.max_retries)
        self._machine = RestartStateMachine(policy, ledger)
        self._movement = AttemptMovement(policy, self._clock.monotonic())
        self._running = False
        self._answered = self._clock.monotonic()
        self._result: RunResult | None = None

    def run(self) -> RunResult:
        """Run until it is over. Raises UnreachableError if the dashboard has gone for good."""
        self._machine.resume()
        while self._result is None:
            try:
                self._poll()
                self._answered = self._clock.monotonic()
            except UnreachableError:
                # Dashboards are restarted: a job is not dead because nobody reports it.
                if self._clock.monotonic() - self._answered > OUT_OF_REACH_SECONDS:
                    raise
            self._feed(events.TimePassed(time=moment(self._clock)))
            if self._result is None:
                self._clock.sleep(self._task.check_interval)
        return self._result

    def _poll(self) -> None:
        now = moment(self._clock)
        if not self._machine.under_way:
            return
        status = self._jobs.status(self.job_id)
        if status == "PENDING":
            return
        if not self._running:
            self._running = True
            self._feed(events.AttemptStarted(time=now))
        if status == "RUNNING":
            self._poll_running(now)
            return
        step = self._jobs.step(self.job_id) if status != "UNKNOWN" else None
        if self._movement.stepped(step, now.steady) and step is not None:
            self._feed(events.Progressed(time=now, step=step))
        if status == "STOPPED" and self._machine.phase == "running":
            # Somebody wanted it to end: starting it again would be against them.
            self._result = RunResult(
                success=False,
                reason=f"job {self.job_id} was stopped",
                final_step=step,
                total_retries=self._machine.ledger.total_retries,
                time_lost_seconds=self._machine.ledger.time_lost,
                bad_nodes=tuple(self._machine.ledger.bad_nodes),
            )
            return
        self._running = False
        self._feed(events.Exited(time=now, failure=self._failure(status), last_saved=self._saved()))

    def _poll_running(self, now: Moment) -> None:
        if self._machine.phase == "ending":
            self._stop()  # it was asked before, and runs
            return
        step = self._jobs.step(self.job_id)
        if self._movement.stepped(step, now.steady) and step is not None:
            self._feed(events.Progressed(time=now, step=step))
        found = self._chosen(self._machine.ledger.left_out).checkpoint
        if found is not None:
            self._feed(events.Saved(time=now, step=found.step))
        if self._machine.phase == "running":
            sighting = self._sighting()
            if why := sighting.hang or self._movement.stagnates(now.steady):
                self._feed(events.HangSeen(time=now, why=why))
            return
        sighting = self._sighting()
        # The sentinel captures by itself; where nobody watches there is nothing to wait for.
        if self._machine.phase == "capturing" and (sighting.bundle or not sighting.hang):
            self._feed(events.EvidenceSecured(time=now))

    def _sighting(self) -> Sighting:
        since = self._attempt_began.today(self._machine.ledger.attempt_started)
        found = self._parts.watch(self._first.name, since)
        if found.bad_nodes:
            self._feed(events.NodesFound(time=moment(self._clock), nodes=found.bad_nodes))
        return found

    def _failure(self, status: str) -> Failure | None:
        if status == "SUCCEEDED":
            return None
        if status == "UNKNOWN":
            return Failure(kind="node-fail", text=f"Ray knows no job {self.job_id} any more")
        job = self._jobs.job(self.job_id)
        failure = self._parts.explain(self._jobs.output(self.job_id))
        return failure if failure.text else Failure(kind="exit", text=job.message)

    def _chosen(self, without: Collection[ResumePoint]) -> Choice:
        parts = self._parts
        return choose(self._task.checkpoint_dirs, without, parts.scan, parts.problem_at)

    def _saved(self) -> float | None:
        found = self._chosen(self._machine.ledger.left_out).checkpoint
        return found.modified if found is not None else None

    def _feed(self, event: SupervisorEvent) -> None:
        for action in self._machine.handle(event):
            self._do(action)

    def _do(self, action: SupervisorAction) -> None:
        now = moment(self._clock)
        match action:
            case actions.Announce():
                self._parts.say(action.text)
                if action.event:
                    self._parts.notify(action.event, action.text)
            case actions.Choose():
                found = self._chosen(action.without)
                problem = lost(found, self._task.checkpoint_dirs, self._machine.ledger)
                self._feed(events.Offered(time=now, checkpoint=found.checkpoint, problem=problem))
            case actions.Launch():
                self._launch(action)
            case actions.EndAttempt():
                self._stop()
            case actions.Clear():
                # Ray ends a stopped job's actors and frees what they held before it starts others.
                self._sighting()
                self._feed(events.Cleared(time=now))
            case actions.Finish():
                self._result = action.result
                event = "success" if action.result.success else "failed"
                self._parts.notify(event, action.result.reason)

    def _stop(self) -> None:
        try:
            self._jobs.stop(self.job_id)
        except SentinelError as error:
            self._parts.say(str(error))

    def _submitted(self, config: dict[str, Any], action: actions.Launch) -> str:
        """The new job's id. Raises UnreachableError if the dashboard has gone for good."""
        wished, since = new_id(), self._clock.monotonic()
        name, tried = self._first.name, False
        while True:
            try:
                if tried and self._jobs.status(wished) != "UNKNOWN":
                    return wished  # only the answer got lost
                tried = True
                return self._jobs.submit(
                    config, action.checkpoint, action.attempt, name, action.without, wished
                )
            except UnreachableError as error:
                # What ended the job may have taken the dashboard with it for a while.
                if self._clock.monotonic() - since > OUT_OF_REACH_SECONDS:
                    raise
                self._parts.say(f"not submitted yet: {error}")
                self._clock.sleep(self._task.check_interval)

    def _launch(self, action: actions.Launch) -> None:
        config = {**self._first.options, "entrypoint": self._first.template}
        self.job_id = self._submitted(config, action)
        start = action.checkpoint.step if action.checkpoint else 0
        self._movement = AttemptMovement(self._policy, self._clock.monotonic(), start)
        where = f" from {action.checkpoint.path}" if action.checkpoint else ""
        self._parts.say(f"attempt {action.attempt} is job {self.job_id}{where}")
