"""Who is behind in launching collectives, over all communicators.

A rank that is behind in one communicator and ahead in another waits itself, and is excused: only
those that wait for nobody are named. One poll of a job that moves looks like one of a job that
hangs, so a lag of one in a single poll names nobody.
"""

from __future__ import annotations

from ray_sentinel.evidence.minority import most_odd
from ray_sentinel.evidence.nccl_ras.context import RasContext
from ray_sentinel.evidence.nccl_ras.counts import Split, split
from ray_sentinel.evidence.nccl_ras.poll import Member
from ray_sentinel.model.ras import RasKind, RasWait

CLEAR_GAP = 2
"""Number of collectives that a rank must be behind for a single poll to mean something."""
MOST_TOLD = 12
"""Most communicators in the answer; of the others only the number is told."""
MOST_NAMED = 8
"""Most ranks named of one communicator; of the others only the number is told."""

Accused = tuple[Split, Member]


def judge_counts(context: RasContext) -> None:
    """Name the ranks that are behind and wait for nobody."""
    splits = [found for look in context.looks if (found := split(look)) is not None]
    if not splits:
        return None
    for item in splits[:MOST_TOLD]:
        _tell(context, item)
    if len(splits) > MOST_TOLD:
        context.say(f"{len(splits) - MOST_TOLD} communicators more have such differences")
    if not context.open:
        return None
    stuck = [item for item in splits if not _odd_moved(item)]
    if not stuck:
        context.say("those behind have launched more between the polls: slow perhaps, not hung")
        return context.conclude("running", 0.9)
    waited_for = [item for item in stuck if not _others_go_on(context, item)]
    if not waited_for:
        context.say(
            "all that are ahead have launched more in other communicators since, and not in this "
            "one: they do not wait here"
        )
        return context.conclude("running", 0.7)
    _judge(context, waited_for)
    return None


def _others_go_on(context: RasContext, item: Split) -> bool:
    """All members ahead stand still in this communicator, and work on in another one: what they
    launched here is not what they wait for (a spare rank takes no part in it)."""
    if any(item.look.moved(member) is not False for member in item.others):
        return False
    working = {
        member.place
        for look in context.looks
        if look is not item.look
        for member in look.last.members
        if member.place is not None and look.moved(member)
    }
    return all(member.place in working for member in item.others)


def _odd_moved(item: Split) -> bool:
    return all(item.look.moved(member) is True for member in item.odd)


def _tell(context: RasContext, item: Split) -> None:
    look = item.look
    odd = [context.who(look, member) for member in item.odd[:MOST_NAMED]]
    shown = item.few or len(item.odd) <= MOST_NAMED
    more = f" and {len(item.odd) - MOST_NAMED} more" if len(item.odd) > MOST_NAMED else ""
    context.say(f"{look.last.name}: {item.text}" + (f": {', '.join(odd)}{more}" if shown else ""))
    ranks = {context.names.of_member(look.last, member) for member in item.others} - {None}
    if ranks:
        ahead = tuple(sorted(rank for rank in ranks if rank is not None))
        context.waits.append(RasWait(ranks=ahead, communicator=look.last.key, text=item.text))


def _judge(context: RasContext, stuck: list[Split]) -> None:
    waiting = {
        context.identity(item.look, member)
        for item in stuck
        if item.kind == "behind"
        for member in item.others
    }
    odd = [(item, member) for item in stuck for member in item.odd]
    roots = [(i, m) for i, m in odd if context.identity(i.look, m) not in waiting]
    if roots and len(roots) < len(odd):
        context.say(
            "ranks that are behind in one communicator and ahead in another wait themselves"
        )
    if len(stuck) > 1 and any(m.place is None for item in stuck for m in item.others):
        roots = _in_all(context, stuck, roots)
    accused = roots or _lone_deviator(context, stuck)
    kind: RasKind = "not-enqueued"
    if not roots or any(item.kind == "order" for item, _ in accused):
        kind = "collective-mismatch"
    if not _can_name(context, accused):
        return context.conclude("cannot-tell" if kind == "not-enqueued" else kind, 0.3)
    twice = all(item.look.moved(member) is False for item, member in accused)
    once = 0.5 if kind == "not-enqueued" else 0.6
    context.conclude(kind, 0.85 if twice else once)
    for item, member in accused:
        told = "has launched other collectives than its peers"
        if kind == "not-enqueued":
            told = f"has not launched what its peers have: {item.text}"
        context.accuse(item.look, member, kind, told)
    return None


def _in_all(context: RasContext, stuck: list[Split], roots: list[Accused]) -> list[Accused]:
    """Those behind everywhere: text does not say who is ahead, so others cannot be excused."""
    everywhere = set.intersection(
        *({context.identity(item.look, member) for member in item.odd} for item in stuck)
    )
    return [(item, m) for item, m in roots if context.identity(item.look, m) in everywhere]


def _lone_deviator(context: RasContext, stuck: list[Split]) -> list[Accused]:
    """All wait for each other in a circle: the one that is alone on its side each time."""
    alone: dict[object, Accused] = {}
    if len(stuck) < 2:
        return []
    for item in stuck:
        side = item.odd if len(item.odd) <= len(item.others) else item.others
        if len(side) != 1 or item.look.last.size < 3:
            return []
        alone[context.identity(item.look, side[0])] = (item, side[0])
    return list(alone.values()) if len(alone) == 1 else []


def _can_name(context: RasContext, accused: list[Accused]) -> bool:
    if not accused:
        context.say("every rank that is behind waits elsewhere itself: a circle")
        return False
    by_split: dict[str, set[object]] = {}
    for item, member in accused:
        by_split.setdefault(item.look.last.key, set()).add(context.identity(item.look, member))
    everyone = set().union(*by_split.values())
    # The excused are not counted: a group that waits for one of its own is one rank behind.
    if any(len(by_split[i.look.last.key]) > most_odd(i.look.last.size) for i, _ in accused):
        context.say("too many are behind to be the exception: they may wait for another")
        return False
    if everyone not in by_split.values():
        context.say(
            "ranks of several communicators are behind and wait in none: they may wait for each "
            "other's sends, which RAS does not count"
        )
        return False
    if any(item.kind == "order" and not item.few for item, _ in accused):
        context.say("the ranks called different collectives, and no side is the exception")
        return False
    return _clear(context, accused)


def _clear(context: RasContext, accused: list[Accused]) -> bool:
    seen_once = any(item.look.moved(member) is None for item, member in accused)
    slight = any(item.kind == "behind" and item.gap < CLEAR_GAP for item, _ in accused)
    if seen_once and slight:
        context.say(
            "one poll and a lag of one: usual in a job that moves; a second poll some seconds "
            "later tells"
        )
        return False
    return True
