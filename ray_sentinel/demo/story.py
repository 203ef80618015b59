"""The demo from its beginning to its end, without a word on the terminal."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from ray_sentinel.actors import deployment
from ray_sentinel.config import Config
from ray_sentinel.demo.cluster import three_nodes
from ray_sentinel.demo.job import Job, write_scripts
from ray_sentinel.demo.plan import EXPECTED, WORLD_SIZE, Plan
from ray_sentinel.errors import SentinelError
from ray_sentinel.model.incident import Incident
from ray_sentinel.model.status import Status

BEGIN_SECONDS = 180.0
"""Until the trouble begins: torch is imported six times, on however few CPUs there are."""
VERDICT_SECONDS = 60.0
REPORT_SECONDS = 90.0
POLL = 0.25

Tell = Callable[[Status | None, str], None]


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """How it went. ``seconds`` from the trouble's beginning to the naming of a culprit."""

    plan: Plan
    attached: bool
    incident: Incident | None
    seconds: float | None
    wrong: str
    """What is wrong with the verdict; empty where it is right."""

    @property
    def right(self) -> bool:
        return not self.wrong


class Stage:
    """The coordinator as the demo sees it: as any user does."""

    def __init__(self, ray: Any, tell: Tell) -> None:
        self._ray = ray
        self._tell = tell
        self.job = ""
        """Other jobs may run on this machine, and have incidents of their own."""
        self.status: Status | None = None

    def look(self, note: str) -> Status:
        """The newest status, shown with a note."""
        raw = deployment.ask(self._ray, deployment.find(self._ray), "status")
        self.status = msgspec.msgpack.decode(raw, type=Status)
        self._tell(self.status, note)
        return self.status

    def incidents(self) -> list[Incident]:
        """Confirmed incidents of the demo's job."""
        raw = deployment.ask(self._ray, deployment.find(self._ray), "incidents")
        told = msgspec.msgpack.decode(raw, type=list[Incident])
        return [incident for incident in told if incident.job == self.job]

    def until(self, seconds: float, note: str, ready: Callable[[], bool]) -> bool:
        """Look again and again until ``ready`` or for ``seconds``; False if it never was."""
        deadline = time.monotonic() + seconds
        while not ready():
            if time.monotonic() > deadline:
                return False
            self.look(note)
            time.sleep(POLL)
        return True


def run(plan: Plan, folder: Path, *, attach: bool, tell: Tell) -> Outcome:
    """Play it. ``folder`` takes the scripts, the ranks' logs and the sentinel's ``log_dir``.

    Raises SentinelError where the cluster or the job does not start.
    """
    write_scripts(folder, plan, attach=attach)
    tell(None, "starting a Ray cluster of three nodes")
    config = Config(job="demo", log_dir=str(folder / "ray_sentinel"))
    with three_nodes() as (ray, addresses):
        deployment.ensure(ray, config)
        stage = Stage(ray, tell)
        try:
            watched = len(addresses)
            if not stage.until(
                60, "starting an agent on each node", lambda: _nodes(stage) >= watched
            ):
                raise SentinelError("not all nodes are watched: see `ray-sentinel status`")
            job = Job(ray, addresses, folder)
            try:
                return _play(plan, job, stage, attach=attach)
            finally:
                job.end()
        finally:
            deployment.down(ray)


def _nodes(stage: Stage) -> int:
    return len(stage.status.nodes) if stage.status else 0


def _play(plan: Plan, job: Job, stage: Stage, *, attach: bool) -> Outcome:
    stage.job = job.name
    job.start()
    how = "attached by one line" if attach else "the script knows nothing of ray_sentinel"
    note = f"{WORLD_SIZE} ranks train over gloo on three nodes ({how}); one will get stuck"
    if not stage.until(BEGIN_SECONDS, note, lambda: job.began() is not None or _early(job)):
        raise SentinelError("the training did not come to the step of the trouble in time")
    began = job.began()
    if began is None:
        raise SentinelError(f"the training ended early: {_last_words(job)}")
    note = "something has gone wrong in one rank; waiting for the verdict"
    stage.until(VERDICT_SECONDS, note, lambda: bool(stage.incidents()))
    note = "there is a verdict; collecting evidence for the report"
    stage.until(REPORT_SECONDS, note, lambda: _reported(stage))
    incident = next(iter(stage.incidents()), None)
    named = incident.confirmed_at if incident else None
    return Outcome(
        plan=plan,
        attached=attach,
        incident=incident,
        seconds=named - began if named is not None else None,
        wrong=judge(plan, stage.incidents()),
    )


def _early(job: Job) -> bool:
    return bool(job.ended()) and job.began() is None


def _last_words(job: Job) -> str:
    ended = sorted(job.ended().items())
    return "; ".join(
        f"rank {rank} with status {code}: {' / '.join(job.last_lines(rank))}"
        for rank, code in ended[:2]
    )


def _reported(stage: Stage) -> bool:
    return all(incident.bundle for incident in stage.incidents()[:1])


def judge(plan: Plan, incidents: list[Incident]) -> str:
    """What is wrong with the incidents, held against what was drawn; empty where nothing is."""
    if len(incidents) != 1 or incidents[0].verdict is None:
        return f"{len(incidents)} incidents instead of one"
    verdict = incidents[0].verdict
    named = [culprit.rank for culprit in verdict.culprits]
    if named != [plan.rank]:
        return f"it names {named}"
    if verdict.kind != EXPECTED[plan.fault]:
        return f"it says {verdict.kind}"
    return ""
