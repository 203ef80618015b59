"""Ranks that are not yet, or no longer, in a communicator that others use.

While a communicator is created or destroyed, its ranks differ for a moment, which is not a fault.
Only what two polls show alike means something.
"""

from __future__ import annotations

from ray_sentinel.evidence.nccl_ras.context import RasContext, minority
from ray_sentinel.evidence.nccl_ras.meshes import CommunicatorView
from ray_sentinel.evidence.nccl_ras.poll import LIVE, Member
from ray_sentinel.model.ras import RasKind

LEFT = ("NOCOMM", "FINALIZE", "ABORT")
_WORDS: dict[RasKind, str] = {
    "startup-stuck": "does not come out of the communicator's initialization",
    "left-communicator": "has left a communicator that others are still in",
}


def judge_memberships(context: RasContext) -> None:
    """Name the few ranks whose state differs from that of the others."""
    for look in context.looks:
        by_state: dict[str, list[Member]] = {}
        for member in look.last.members:
            if member.state in LIVE or member.state == "NOCOMM":
                by_state.setdefault(member.state, []).append(member)
        if len(by_state) < 2 and "INIT" not in by_state:
            continue
        told = ", ".join(f"{len(found)} {state}" for state, found in sorted(by_state.items()))
        context.say(f"{look.last.name}: its ranks are {told}")
        if look.first is None or not _unchanged(look):
            context.say(
                "that is usual while a communicator is made or torn down; a second poll tells "
                "whether it stays so"
            )
            context.conclude("cannot-tell", 0.2)
        elif context.open:
            _judge(context, look, by_state)


def _judge(context: RasContext, look: CommunicatorView, by_state: dict[str, list[Member]]) -> None:
    left = [member for state in LEFT for member in by_state.get(state, [])]
    init, running = by_state.get("INIT", []), by_state.get("RUNNING", [])
    kind: RasKind = "startup-stuck" if init else "left-communicator"
    odd = left
    if init:
        odd = init if running else by_state.get("NOCOMM", [])
    context.conclude(kind, 0.6)
    if odd and minority(look, len(odd)):
        for member in odd:
            context.accuse(look, member, kind, _WORDS[kind])
    else:
        context.say("no few ranks stand out")


def _unchanged(look: CommunicatorView) -> bool:
    pairs = [(member, look.before(member.rank)) for member in look.last.members]
    return all(old is not None and old.state == new.state for new, old in pairs)
