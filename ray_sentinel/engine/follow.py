"""A case from its suspicion to its end: confirmed or dropped, captured, looked at again, over."""

from __future__ import annotations

import msgspec

from ray_sentinel.config import Config
from ray_sentinel.engine import asking
from ray_sentinel.engine.actions import AnyAction, Publish
from ray_sentinel.engine.alerting import AlertBook
from ray_sentinel.engine.case import Case
from ray_sentinel.engine.casebook import CaseBook, why_over
from ray_sentinel.engine.cluster import ClusterView
from ray_sentinel.engine.hardware import blame_hardware
from ray_sentinel.engine.judgement import Judgement
from ray_sentinel.engine.table import CONFIRMED, advance
from ray_sentinel.engine.verdict import judge

SETTLE = 1.0
"""Seconds that a hard finding must last, unless it is settled: some are stopped for a moment."""
RECORDER_OVERDUE = 6.0
"""Ranks that are ending take some seconds, and leave their recorders on the way."""
ROUND_OVERDUE = 4.0
"""Seconds after which a round of stacks that has not come is done without."""
LOOK_AGAIN = 5.0
"""Seconds between rounds while a case waits."""
MOST_CAPTURES = 3
"""Of one case, later looks included."""
LASTING = frozenset({"rank-stopped", "gil-held", "kernel-blocked"})
"""Kinds of proven faults in which no process ends, so that nobody falls over anybody."""


class Follower:
    """Changes cases and the book they are kept in; asks for evidence by actions."""

    def __init__(
        self, config: Config, view: ClusterView, book: CaseBook, alerts: AlertBook
    ) -> None:
        self._config, self._view, self._book, self._alerts = config, view, book, alerts

    def follow(self, case: Case, found: set[tuple[str, int, str]], now: float) -> list[AnyAction]:
        """What is to be done about a case now; ``found``: the findings that still hold."""
        if case.incident.state == "suspected":
            return self._confirm_or_drop(case, found, now)
        if case.incident.state in CONFIRMED:
            return self._watch_the_end(case, found, now)
        return []

    def _confirm_or_drop(
        self, case: Case, found: set[tuple[str, int, str]], now: float
    ) -> list[AnyAction]:
        for rule in list(case.findings):
            if case.key(rule) not in found:
                del case.findings[rule]
        hard = any(finding.hard for finding in case.findings.values())
        if not case.findings:
            return self._drop(case, "it moves again", now)
        if hard:
            settled = any(finding.settled for finding in case.findings.values())
            held = settled or now - case.opened_at >= SETTLE
            if not held or not self._round_settled(case, now):
                return []
            return self._decide(case, self._judge(case, now, proven=True), now)
        case.hard = False
        if not case.answered() and now - case.asked_round_at < ROUND_OVERDUE:
            return []
        if case.asked_round < 2:
            due = now - case.asked_round_at >= self._config.hang.confirm_seconds
            return asking.stacks(case, now) if due else []
        judgement = self._judge(case, now, proven=False)
        if not judgement.verdict.culprits and _recorders_to_come(case, now):
            return []
        return self._decide(case, judgement, now)

    @staticmethod
    def _round_settled(case: Case, now: float) -> bool:
        """Stacks of the moment are worth a second, no more: proof does not need them.

        A finding without a suspect needs the recorders, which may show who it was.
        """
        if case.nobody_suspected() and case.recorder_asked_at is not None:
            return not _recorders_to_come(case, now)
        return case.answered() or now - case.opened_at > 1.5 * SETTLE

    def _judge(self, case: Case, now: float, *, proven: bool) -> Judgement:
        hosts = {node_id: node.node.host for node_id, node in self._view.nodes.items()}
        case.alerts = self._alerts.of(self._view, case.job)
        return blame_hardware(judge(case, now, host_of=hosts, proven=proven), case)

    def _decide(self, case: Case, judgement: Judgement, now: float) -> list[AnyAction]:
        if judgement.decision == "dismiss":
            return self._drop(case, judgement.why, now)
        if judgement.decision == "wait":
            due = now - case.asked_round_at >= LOOK_AGAIN
            if not due:
                return []
            return asking.everything(case, now)
        verdict = judgement.verdict
        confirmed = advance(case.incident, "confirmed", now, verdict.summary)
        self._book.confirm(case, case.with_verdict(confirmed, verdict))
        return [Publish(incident=case.incident), *self.capture(case, now)]

    def capture(self, case: Case, now: float, *, thorough: bool = False) -> list[AnyAction]:
        """Ask for everything that tells of the case; nothing where it is about ourselves."""
        if case.about_ourselves:
            return []
        return [asking.capture(case, now, self._config.capture, thorough=thorough)]

    def _drop(self, case: Case, why: str, now: float) -> list[AnyAction]:
        self._book.drop(case, why, now)
        return []

    def _watch_the_end(
        self, case: Case, found: set[tuple[str, int, str]], now: float
    ) -> list[AnyAction]:
        why = why_over(case, self._view.jobs.get(case.job.key), found)
        if why and not case.capturing:
            self._book.resolve(case, why, now)
            return [Publish(incident=case.incident)]
        again = now - (case.captured_at or now) >= self._config.capture.cooldown_seconds
        if again and not case.capturing and case.captures < MOST_CAPTURES and not why:
            return self.capture(case, now)
        withdrawn = case.incident.kind in LASTING and case.withdraw(found)
        if withdrawn and (told := self._tell_again(case, now)):
            return told
        silent = case.key("hang.silent") in found
        return self._look_for_more(case, found, now) if silent and not case.complete else []

    def _look_for_more(
        self, case: Case, found: set[tuple[str, int, str]], now: float
    ) -> list[AnyAction]:
        """Beside one that was proven and is still there, another may stand still unproven: two
        more rounds of stacks tell, once silence is long enough to mean something."""
        if case.incident.kind not in LASTING:
            return []
        waited = now - case.asked_round_at
        if not case.answered() and waited < ROUND_OVERDUE:
            return []
        if case.later_rounds < 2:
            if waited < self._config.hang.confirm_seconds:
                return []
            case.later_rounds += 1
            return asking.stacks(case, now)
        case.complete = True
        case.withdraw(found)
        return self._tell_again(case, now)

    def _tell_again(self, case: Case, now: float) -> list[AnyAction]:
        """Judge anew what was named, and tell it where that says more, or what was proven of its
        kind does not hold any more."""
        more = self._judge(case, now, proven=False).verdict
        told = case.incident.verdict
        known = {(culprit.host, culprit.pid) for culprit in told.culprits} if told else set()
        named = {(culprit.host, culprit.pid) for culprit in more.culprits}
        if not known <= named or (known == named and not case.withdrawn):
            return []
        verdict = more if case.withdrawn else msgspec.structs.replace(more, kind=case.incident.kind)
        case.withdrawn = False
        self._book.keep(case, case.with_verdict(case.incident, verdict))
        return [Publish(incident=case.incident)]


def _recorders_to_come(case: Case, now: float) -> bool:
    """On a busy machine they come after the stacks, and they may know whom to name."""
    asked = case.recorder_asked_at
    return case.recorder_pending and asked is not None and now - asked < RECORDER_OVERDUE
