"""All checks of one node, run at once, each under its deadline."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec

from ray_sentinel.doctor.check import Check, Cluster, Here, ProbeResult
from ray_sentinel.doctor.collective import Reduced
from ray_sentinel.doctor.plan import RunPlan
from ray_sentinel.errors import SentinelError
from ray_sentinel.masking import mask_record

log = logging.getLogger(__name__)


class CheckReading(msgspec.Struct, frozen=True, kw_only=True):
    """The facts of one check on one node; sent as MessagePack."""

    check: str
    facts: bytes | None = None
    """The encoded facts; None if there was nothing to look at, or the look failed."""
    problem: str = ""
    """Why the check could not look; empty if it could."""


class DoctorFindings(msgspec.Struct, frozen=True, kw_only=True):
    """What was found on all nodes."""

    looks: Mapping[str, Sequence[CheckReading]]
    """The readings of each host."""
    cluster: Cluster | None = None
    """The Ray cluster; None if only this machine was examined."""
    visits: tuple[ProbeResult, ...] = ()
    reduced: tuple[Reduced, ...] = ()
    """How each node's part in the sum over all nodes went; empty if no sum was made."""


def examine(checks: Iterable[Check[Any]], plan: RunPlan, here: Here) -> tuple[CheckReading, ...]:
    """Look with every check that the plan wants.

    A check that does not end in time is left in its thread, and reported.
    """
    wanted = [check for check in checks if plan.wants(check.name)]
    answers: dict[str, CheckReading] = {}
    threads = {
        check.name: threading.Thread(
            target=_inspect,
            args=(check, plan, here, answers),
            name=f"check-{check.name}",
            daemon=True,
        )
        for check in wanted
    }
    for thread in threads.values():
        thread.start()
    until = time.monotonic() + plan.deadline
    for thread in threads.values():
        thread.join(max(0.0, until - time.monotonic()))
    late = f"did not end within {plan.deadline:.0f} s: what it looks at hangs"
    looks = (answers.get(name) or CheckReading(check=name, problem=late) for name in threads)
    return tuple(mask_record(look) for look in looks)


def _inspect(
    check: Check[Any], plan: RunPlan, here: Here, answers: dict[str, CheckReading]
) -> None:
    try:
        facts = check.look(plan, here)
        data = None if facts is None else msgspec.msgpack.encode(mask_record(facts))
        answers[check.name] = CheckReading(check=check.name, facts=data)
    except OSError as error:
        where = f"{error.filename}: " if error.filename else ""
        answers[check.name] = CheckReading(
            check=check.name, problem=f"{where}{error.strerror or error}"
        )
    except SentinelError as error:
        answers[check.name] = CheckReading(check=check.name, problem=str(error))
    except (Exception, SystemExit) as error:
        # The runner's loop: a user's check may fail in any way.
        log.debug("check %s failed", check.name, exc_info=True)
        problem = f"the check itself failed: {type(error).__name__}: {error}"
        answers[check.name] = CheckReading(check=check.name, problem=problem)
