"""What culprits wrote last, quoted in the next steps."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from ray_sentinel.model.fault_kinds import READ_LAST_LINES
from ray_sentinel.model.incident import RankLog, Verdict

ECHOES = "Its peers' errors are echoes."
MOST_TOLD = 4
"""Most culprits whose last lines are among the next steps."""


def with_last_lines(
    verdict: Verdict, logs: Iterable[RankLog], before: Iterable[RankLog] = ()
) -> Verdict:
    """The verdict with what its culprits wrote last, if known, in place of the steps that send the
    reader to look for it. ``before`` are the logs that the steps already quote."""
    by_process: dict[tuple[str, int | None, int | None], RankLog] = {
        (log.host, log.rank, log.pid): log for log in logs
    }
    blamed = [by_process.get((c.host, c.rank, c.pid)) for c in verdict.culprits]
    found = [log for log in blamed if log is not None and log.ended]
    if not found:
        return verdict
    old = {READ_LAST_LINES, ECHOES, *map(_describe, before)}
    kept = tuple(step for step in verdict.next_steps if step not in old)
    echoes = (ECHOES,) if {READ_LAST_LINES, ECHOES} & set(verdict.next_steps) else ()
    told = [_describe(log) for log in found[:MOST_TOLD]]
    return msgspec.structs.replace(verdict, next_steps=(*told, *echoes, *kept))


def _describe(log: RankLog) -> str:
    who = f"{log.who} on {log.host}"
    if not log.file:
        return f"The last lines of {who} are not in the bundle: {log.missing or 'it wrote none'}."
    if log.telling:
        return f"{who[0].upper()}{who[1:]} ended with: {log.telling} ({log.file} in the bundle)"
    if log.shared:
        return f"Read {log.file} in the bundle: the last lines of {who}, and of others in between."
    return f"Read {log.file} in the bundle: the last lines of {who}, none of which names an error."
