"""Errors that ranks of a communicator report.

A "remote process error" says that somebody else has gone. Any other is the rank's own.
"""

from __future__ import annotations

from ray_sentinel.evidence.nccl_ras.context import RasContext, minority
from ray_sentinel.evidence.nccl_ras.poll import ERRORS, REMOTE_ERROR

MOST_TOLD = 16
"""Errors in the answer."""


def judge_errors(scene: RasContext) -> None:
    """Name the few ranks that report an error of their own."""
    failed = [(look, m) for look in scene.looks for m in look.last.members if m.error]
    if not failed:
        return
    for look, member in failed[:MOST_TOLD]:
        scene.say(f"{scene.who(look, member)} reports: {member.error} ({look.last.name})")
    if len(failed) > MOST_TOLD:
        scene.say(f"... and {len(failed) - MOST_TOLD} such reports more")
    if not scene.open:
        return
    own = {
        scene.identity(look, member): (look, member)
        for look, member in failed
        if member.error != ERRORS[REMOTE_ERROR]
    }
    if not own or not all(minority(look, len(own)) for look, _ in own.values()):
        scene.say("no few ranks stand out by an error of their own")
        scene.conclude("cannot-tell", 0.3)
        return
    scene.conclude("communicator-error", 0.8)
    for look, member in own.values():
        scene.accuse(look, member, "communicator-error", f"reports: {member.error}")
