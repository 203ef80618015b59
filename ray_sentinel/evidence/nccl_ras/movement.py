"""Whether anything moves at all, and what can be said if nothing was found."""

from __future__ import annotations

from ray_sentinel.evidence.nccl_ras.context import RasContext


def judge_table(context: RasContext) -> None:
    """Report communicators that are in the table but not described in the output."""
    last = context.polls[-1]
    bad = sum(row.communicators for row in last.rows if row.errors)
    if bad > len(context.looks):
        errors = ", ".join(sorted({error for row in last.rows for error in row.errors}))
        context.say(
            f"{bad - len(context.looks)} communicators with {errors} are listed without details"
        )
        context.conclude("cannot-tell", 0.2)
    if any(row.status == "INIT" for row in last.rows):
        context.say("communicators are being initialized")


def judge_movement(context: RasContext) -> None:
    """Compare the counts of the polls, if there are two."""
    changes = [look.moved(member) for look in context.looks for member in look.last.members]
    moved, still = changes.count(True), changes.count(False)
    if moved:
        context.say(f"between the polls {moved} of {moved + still} ranks' counts went on")
    elif still:
        apart = [look.apart for look in context.looks if look.apart is not None]
        context.say("no count has moved" + (f" over {max(apart):.0f} s" if apart else ""))
    if not context.open:
        return
    if moved:
        context.conclude("running", 0.9)
    elif still:
        context.say(
            "all have launched the same and none goes on: they wait in a collective that does not "
            "end (device, network), in a send or receive, or outside of NCCL"
        )
        context.conclude("stall", 0.4)
    else:
        if len(context.polls) > 1:
            context.say(
                "the polls are text for people, which has no counts: whether anything moved "
                "between them does not show; `ncclras -f json` tells it"
            )
        context.say(
            "RAS reports no mismatch. That does not prove health: sends and receives are not "
            "counted, and ranks that hang in the same collective look alike"
        )
