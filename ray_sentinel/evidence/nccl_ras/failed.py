"""Errors that ranks of a communicator report.

A "remote process error" means that another process is gone. Any other error is the rank's own.
"""

from __future__ import annotations

from ray_sentinel.evidence.nccl_ras.context import RasContext, minority
from ray_sentinel.evidence.nccl_ras.poll import ERRORS, REMOTE_ERROR

MOST_TOLD = 16
"""Most errors in the answer; of the others only the number is told."""


def judge_errors(context: RasContext) -> None:
    """Name the few ranks that report an error of their own."""
    failed = [(look, m) for look in context.looks for m in look.last.members if m.error]
    if not failed:
        return
    for look, member in failed[:MOST_TOLD]:
        context.say(f"{context.who(look, member)} reports: {member.error} ({look.last.name})")
    if len(failed) > MOST_TOLD:
        context.say(f"... and {len(failed) - MOST_TOLD} such reports more")
    if not context.open:
        return
    own = {
        context.identity(look, member): (look, member)
        for look, member in failed
        if member.error != ERRORS[REMOTE_ERROR]
    }
    if not own or not all(minority(look, len(own)) for look, _ in own.values()):
        context.say("no few ranks stand out by an error of their own")
        context.conclude("cannot-tell", 0.3)
        return
    context.conclude("communicator-error", 0.8)
    for look, member in own.values():
        context.accuse(look, member, "communicator-error", f"reports: {member.error}")
