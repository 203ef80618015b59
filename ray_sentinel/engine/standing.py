"""Whether a rank stands still, by its looks and its CPU, whatever it says of its steps."""

from __future__ import annotations

from ray_sentinel.engine.ranks import RankView
from ray_sentinel.evidence.stacks import movement


def stands(view: RankView, moved: float, seconds: float) -> bool:
    """Whether its looks since ``moved``, over ``seconds`` at least, find it nowhere new.

    One that computes and waits in turn is at work. What hardly runs at all may go round: a loop
    that asks for something again and again does not get on.
    """
    looks = [look for look in view.looks if look.at >= moved]
    if view.working or not looks:
        return False
    edge = looks[-1].at - seconds
    begun = sum(look.at <= edge for look in looks) - 1
    if begun < 0:
        return False
    lately = looks[begun:]
    if movement(lately) == "stuck":
        return True
    known = {look.signature for look in looks[:-2]}
    return view.idle and all(look.signature in known for look in looks[-2:])
