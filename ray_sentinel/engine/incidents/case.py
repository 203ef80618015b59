"""The work on an open incident, and the evidence gathered for it."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from ray_sentinel.engine.incidents.milestones import added, of_progress
from ray_sentinel.engine.jobs import JobView
from ray_sentinel.engine.ranks import RankView
from ray_sentinel.engine.verdicts.last_lines import with_last_lines
from ray_sentinel.evidence.movement import Movement, last_before, settled
from ray_sentinel.evidence.stacks import movement, with_kernels
from ray_sentinel.evidence.stacks.compare import shared_depth
from ray_sentinel.model.alert import Alert
from ray_sentinel.model.fault_kinds import KINDS
from ray_sentinel.model.identity import ProcessId
from ray_sentinel.model.incident import Finding, Incident, Milestone, Verdict
from ray_sentinel.model.ras import RasFacts
from ray_sentinel.model.recorder import RecorderFacts
from ray_sentinel.model.stacks import EarlierLook, StackFact

OURSELVES = "sentinel."
"""The beginning of the rules about the sentinel itself: their incidents say nothing about the job,
and hide nothing of it."""
ASKED = "user.dump"
REQUESTS_RULE = "stall.requests"
DATA_AFTER, DATA_WITHIN = 2.5, 8.0
"""Seconds. What a rank wrote until DATA_AFTER past the last movement says nothing; what it writes
later counts as activity for DATA_WITHIN, because our own tools make it write in between."""
APART = 0.5
"""Multiple of ``hang.confirm_seconds``: looks closer than this count as one moment."""
KEPT_ROUNDS = 60
"""Most rounds of stacks that are kept."""
MOST_EARLIER = 8
"""Most of these rounds that a verdict tells of each process."""
Round = dict[ProcessId, StackFact]


class Case(msgspec.Struct, kw_only=True, omit_defaults=True, dict=True):
    """The work on an open incident. Only the engine changes it. Times are on the coordinator's
    clock.

    The incident and the job are the store's and the cluster's: the case holds their numbers, and
    ``bind`` gives them.
    """

    incident_id: str
    job_number: int
    opened_at: float
    asked_round_at: float
    hard: bool = False
    findings: dict[str, Finding] = {}
    """Findings by rule."""
    rounds: list[tuple[float, Round]] = []
    """Rounds of stacks, and when they arrived."""
    round_numbers: list[int] = []
    """The numbers of these rounds."""
    early: dict[int, Round] = {}
    """Stacks that arrived before the rest of their round was judged, by its number."""
    asked_round: int = 0
    last_round: int = 0
    """The numbers of the rounds that were requested last, and that arrived last."""
    recorder: RecorderFacts | None = None
    recorder_asked_at: float | None = None
    recorder_pending: bool = False
    ras: RasFacts | None = None
    unjudged: bool = False
    """Whether results of recorders or RAS have arrived since the verdict."""
    milestones: tuple[Milestone, ...] = ()
    """The timeline so far."""
    alerts: tuple[Alert, ...] = ()
    """Current alerts of telemetry rules about the job and its hosts."""
    later_rounds: int = 0
    """Rounds of stacks after the proven culprit was named."""
    complete: bool = False
    """Whether no further culprit is searched for."""
    withdrawn: bool = False
    """Whether a finding behind the verdict has been withdrawn since."""
    captures: int = 0
    captured_at: float | None = None
    capturing: bool = False
    tracing: tuple[ProcessId, ...] = ()
    """Processes of which the last capture is to take deeper stacks."""
    traced: tuple[ProcessId, ...] = ()
    """Processes whose deeper stacks have been captured."""
    capture_due: float = 0.0
    """When a missing capture is no longer waited for."""

    def bind(self, incidents: Mapping[str, Incident], job: JobView) -> Case:
        """Set the records, one of which is the case's incident, and the job."""
        self._incidents, self.job = incidents, job
        return self

    @property
    def incident(self) -> Incident:
        """The incident's current record."""
        return self._incidents[self.incident_id]

    @property
    def about_ourselves(self) -> bool:
        """Whether the incident concerns the sentinel, not the job."""
        return self.incident.rule.startswith(OURSELVES)

    def key(self, rule: str) -> tuple[str, int, str]:
        """The ``Finding.key`` of what the rule finds about its job."""
        return (self.job.job, self.job.attempt, rule)

    def with_verdict(self, incident: Incident, verdict: Verdict) -> Incident:
        """An incident of this case with the given verdict."""
        blamed = {(culprit.rank, culprit.pid) for culprit in verdict.culprits}
        views = [
            view
            for view in self.job.ranks.values()
            if (view.rank.id.rank, view.rank.process.pid) in blamed
        ]
        return msgspec.structs.replace(
            incident,
            kind=verdict.kind,
            milestones=added(self.milestones, *of_progress(self._shown(verdict, views))),
            severity="warning" if KINDS[verdict.kind].is_mild or self._is_warning() else "critical",
            summary=verdict.summary,
            verdict=with_last_lines(verdict, incident.logs),
            suspects=tuple(view.rank.id for view in views),
            processes={str(view.rank.id.rank): view.rank.process for view in views},
        )

    def is_made_worse_by(self, finding: Finding) -> bool:
        """Whether the rule that has its own verdict called it a warning before and no longer
        does."""
        told = self.incident.confirmed_at is not None and self._is_warning()
        return told and finding.rule in self.findings and finding.severity == "critical"

    def is_redescribed_by(self, finding: Finding) -> bool:
        """Whether the rule that knows what is missing now describes it differently."""
        before, told = self.findings.get(finding.rule), self.incident.verdict
        return (
            told is not None
            and before is not None
            and before.verdict is not None
            and finding.verdict is not None
            and told.kind == finding.verdict.kind
            and KINDS[told.kind].is_lack
            and before.verdict.summary != finding.verdict.summary
        )

    def _is_warning(self) -> bool:
        """Whether the rule that knows the whole verdict calls it a warning."""
        known = (finding for finding in self.findings.values() if finding.verdict is not None)
        return any(finding.severity == "warning" for finding in known)

    def _shown(self, verdict: Verdict, blamed: list[RankView]) -> list[RankView]:
        """The ranks that a report names and shows, those that are blamed first."""
        shown = (self.job.ranks.get(fact.process) for fact in verdict.stacks)
        views = [*blamed, *(view for view in shown if view is not None)]
        return list({view.rank.process: view for view in views}.values())

    def count_captures(self) -> None:
        """Restore the number of captures from the incident. A confirmed incident without one is due
        for it."""
        captured = [step.at for step in self.incident.history if step.state == "captured"]
        self.captures, self.captured_at = len(captured), max(captured, default=float("-inf"))

    def add_round(self, at: float, number: int, facts: tuple[StackFact, ...]) -> None:
        """Add a round of stacks. Rounds come in order; a late one is dropped."""
        if number > self.last_round:
            self.last_round = number
            early = self.early.get(number, {})
            self.early = {later: known for later, known in self.early.items() if later > number}
            self.rounds.append((at, early | {fact.process: fact for fact in facts}))
            self.round_numbers.append(number)
        del self.rounds[:-KEPT_ROUNDS], self.round_numbers[:-KEPT_ROUNDS]

    def complete_round(self, number: int, facts: tuple[StackFact, ...]) -> None:
        """Add stacks that belong to a round that has already been judged, or is about to be."""
        if number in self.round_numbers:
            _, known = self.rounds[self.round_numbers.index(number)]
        elif self.last_round < number <= self.asked_round:
            known = self.early.setdefault(number, {})
        else:
            return
        for fact in facts:
            known.setdefault(fact.process, fact)

    def add_captured(self, facts: tuple[StackFact, ...]) -> bool:
        """Add what the deeper tools show of processes that have been sampled: the kernels on their
        devices. Sampling shows that a process waits for its device, and not for what the device
        waits. Returns whether any were listed."""
        told = {fact.process for fact in facts}  # of all: harmless tools run on each
        self.traced = tuple(dict.fromkeys((*self.traced, *(p for p in self.tracing if p in told))))
        listed = {fact.process: fact for fact in facts if fact.kernels_listed}
        found = False
        for _, round_ in self.rounds[-2:]:  # by those it is judged who stands still
            for process in listed.keys() & round_.keys():
                round_[process] = with_kernels(round_[process], listed[process].kernels)
                found = True
        return found

    def nobody_suspected(self) -> bool:
        """Whether the finding is proven but accuses nobody."""
        return not any(finding.suspects for finding in self.findings.values())

    def withdraw(self, found: set[tuple[str, int, str]]) -> bool:
        """Withdraw what seemed proven about a rank if the finding no longer holds and the rank has
        since been seen going round in a loop. Returns whether there was any."""
        looping = {view.rank.id for view in self.job.live if view.looped_at > self.opened_at}
        gone = [
            rule
            for rule, finding in self.findings.items()
            if finding.hard
            and self.key(rule) not in found
            and looping.intersection(finding.suspects)
        ]
        for rule in gone:
            del self.findings[rule]
        self.withdrawn |= bool(gone)
        return bool(gone)

    def awaits_capture(self, now: float) -> bool:
        """Whether a capture was requested and may still arrive."""
        return self.capturing and now < self.capture_due

    def answered(self) -> bool:
        """Whether the round that was requested last has arrived."""
        return self.last_round >= self.asked_round

    def latest(self, process: ProcessId) -> StackFact | None:
        """The most recent readable stacks of a process."""
        for _, round_ in reversed(self.rounds):
            fact = round_.get(process)
            if fact is not None and not fact.error:
                return fact
        return None

    @property
    def seen(self) -> list[tuple[RankView, StackFact]]:
        """The living ranks of which stacks could be read, each with its most recent ones."""
        latest = ((view, self.latest(view.rank.process)) for view in self.job.live)
        return [(view, fact) for view, fact in latest if fact is not None]

    def with_looks(self, fact: StackFact) -> StackFact:
        """The fact, extended by what the earlier rounds showed of its process."""
        rounds = [
            (place, at, look)
            for place, (at, round_) in enumerate(self.rounds)
            if (look := round_.get(fact.process)) and look.tool == fact.tool and not look.error
        ]
        seen = [found.signature for _, _, found in rounds]
        before = next((one for one in reversed(seen) if one and one != fact.signature), ())
        newest, now = len(self.rounds) - 1, self.rounds[-1][0] if self.rounds else 0.0
        earlier = tuple(
            _earlier(fact, found.signature, newest - place, now - at)
            for place, at, found in rounds[-2 : -2 - MOST_EARLIER : -1]
            if found.signature
        )
        return msgspec.structs.replace(fact, looks=len(seen), before=before, earlier=earlier)

    def movement(self, process: ProcessId) -> Movement:
        """How its stack changed over the last two rounds in which it was readable.

        Looks at nearly the same moment, as a busy node takes them, count as one: their agreement
        means nothing. A loop that stays within one function is movement too, unless it never leaves
        the CPU: work reads, writes and waits now and then.
        """
        seen, apart = self._last_looks(process)
        view = self.job.ranks[process]
        found = settled(movement(seen), may_loop=view.spinning)
        # Two looks may find a loop that computes and sleeps in the same line.
        if found == "stuck" and view.working:
            return "moved"
        return found if apart or found == "moved" else "unknown"

    def times_seen(self, process: ProcessId) -> int | None:
        """How often it was seen where it is, looks apart; None if it was never readable."""
        seen, apart = self._last_looks(process)
        if not seen:
            return None
        return 2 if apart and self.movement(process) != "moved" else 1

    def _last_looks(self, process: ProcessId) -> tuple[list[StackFact], bool]:
        """The last readable looks at the process, oldest first, back to the last one that is well
        before the newest; and whether there is one."""
        seen = sorted(
            (
                (round_[process].at or at, round_[process])
                for at, round_ in self.rounds
                if process in round_ and not round_[process].error
            ),
            key=lambda look: look[0],
        )
        before = last_before([at for at, _ in seen], self.job.hang.confirm_seconds * APART)
        return [fact for _, fact in seen[before or 0 :]], before is not None

    def moves_data(self, process: ProcessId, now: float) -> bool:
        """Whether it kept reading or writing after the job had fallen silent, until recently."""
        at = self.job.ranks[process].data_at
        return at > self.job.moved_at() + DATA_AFTER and now - at < DATA_WITHIN


def _earlier(
    shown: StackFact, signature: tuple[str, ...], rounds: int, seconds: float
) -> EarlierLook:
    shared = shared_depth(signature, shown.signature)
    return EarlierLook(
        rounds_before=rounds,
        seconds_before=round(seconds, 1),
        shared=shared,
        rest=signature[shared:],
    )
