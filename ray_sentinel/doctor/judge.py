"""The results of the checks, from the facts of all nodes."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec

from ray_sentinel.doctor.check import WORST_FIRST, Check, CheckInput, CheckResult, warning
from ray_sentinel.doctor.examine import CheckReading, DoctorFindings
from ray_sentinel.doctor.plan import RunPlan

log = logging.getLogger(__name__)


def judge(
    checks: Iterable[Check[Any]], plan: RunPlan, found: DoctorFindings
) -> tuple[CheckResult, ...]:
    """All results, in the order of the checks."""
    results: list[CheckResult] = []
    for check in checks:
        if not plan.wants(check.name):
            continue
        seen, problems = _facts(check, found.looks)
        results += (named(result, check.name) for result in problems)
        if problems and not seen:
            continue  # nobody could look: "nothing to check" would not be true
        case = CheckInput(
            plan=plan,
            seen=seen,
            cluster=found.cluster,
            visits=found.visits,
            reduced=found.reduced,
        )
        results += _judged(check, case)
    return tuple(results)


def _facts(
    check: Check[Any], looks: Mapping[str, Sequence[CheckReading]]
) -> tuple[dict[str, Any], list[CheckResult]]:
    seen: dict[str, Any] = {}
    problems: list[CheckResult] = []
    for host, found in looks.items():
        for look in found:
            if look.check != check.name:
                continue
            if look.problem:
                remedy = "look there by hand, or leave it out with --skip " + check.name
                problems.append(warning(f"could not be checked: {look.problem}", remedy, host))
            elif look.facts is not None:
                seen[host] = msgspec.msgpack.decode(look.facts, type=check.facts)
    return seen, problems


def _judged(check: Check[Any], case: CheckInput[Any]) -> list[CheckResult]:
    try:
        return [named(result, check.name) for result in check.judge(case)]
    except (Exception, SystemExit) as error:
        # The runner's loop: a user's check may fail in any way.
        log.debug("check %s failed", check.name, exc_info=True)
        text = f"the check itself failed: {type(error).__name__}: {error}"
        return [named(warning(text, "mend the check"), check.name)]


def named(result: CheckResult, check: str) -> CheckResult:
    """The result under its check's name."""
    return msgspec.structs.replace(result, check=check)


def worst(results: Iterable[CheckResult]) -> str:
    """The worst outcome; "ok" if nothing was checked."""
    return min((result.outcome for result in results), key=WORST_FIRST.index, default="ok")
