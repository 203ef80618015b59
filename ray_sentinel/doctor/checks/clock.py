"""The nodes' clocks agree: else logs cannot be put in order, and tokens expire."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from ray_sentinel.doctor.check import (
    CheckInput,
    CheckResult,
    JointCheck,
    failure,
    ok,
    skipped,
    warning,
)


class ClockCheck(JointCheck):
    """Judges the clock differences that the peer probes measured."""

    name = "clock"
    about = "clocks agree"

    def judge(self, case: CheckInput[Any]) -> Iterable[CheckResult]:
        """Each node's clock against the median, as seen by all others."""
        measured = [visit for visit in case.visits if visit.ahead is not None]
        if not measured:
            yield skipped("there is no other node to compare with")
            return
        limit = case.plan.skew_seconds
        offsets = _offsets(
            [(v.visitor, v.host, v.ahead or 0.0, v.seconds or 0.0) for v in measured]
        )
        found = []
        for host, (offset, doubt) in sorted(offsets.items()):
            sure = abs(offset) - doubt
            if sure > limit / 10:
                tell = failure if sure > limit else warning
                way = "ahead of" if offset > 0 else "behind"
                found.append(
                    tell(
                        f"its clock is {abs(offset):.3f} s {way} the others'",
                        "`chronyc tracking` (or `timedatectl`) there; start chronyd",
                        host,
                    )
                )
        most = max((abs(offset) for offset, _ in offsets.values()), default=0.0)
        yield from found or [ok(f"within {most * 1000:.1f} ms")]


def _offsets(
    measured: list[tuple[str, str, float, float]],
) -> dict[str, tuple[float, float]]:
    """Host → (seconds ahead of the median clock, doubt).

    Starting from the first prober, clock differences are added up along the probes; the median of
    all clocks is then taken as right, so that the one node that is wrong is named, not all the
    others.
    """
    start = measured[0][0]
    known: dict[str, tuple[float, float]] = {start: (0.0, 0.0)}
    growing = True
    while growing:
        growing = False
        for visitor, host, ahead, seconds in measured:
            for here, there, sign in ((visitor, host, 1.0), (host, visitor, -1.0)):
                if here in known and there not in known:
                    base, doubt = known[here]
                    known[there] = (base + sign * ahead, doubt + seconds / 2)
                    growing = True
    ordered = sorted(offset for offset, _ in known.values())
    middle = ordered[len(ordered) // 2] if len(ordered) > 2 else 0.0
    return {host: (offset - middle, doubt) for host, (offset, doubt) in known.items()}
