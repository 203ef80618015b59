"""Resources that Ray creates for placement groups: "CPU_group_29a1..." is a part of the group's
CPUs, "CPU_group_0_29a1..." a part of its first bundle's."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from ray_sentinel import regex as re

_OF_GROUP = re.compile(r"^(?P<name>.+)_group_(?:(?P<bundle>\d{1,9})_)?(?P<group>[0-9a-f]{16,})$")
_PLACE = "bundle"
"""The resource of which each call in a group takes a thousandth, so that it runs where the group
is."""


class GroupNeed(msgspec.Struct, frozen=True):
    """What is requested, or held, in a placement group."""

    group: str
    """The id of the placement group."""
    bundle: int | None
    """The number of the bundle; None where any will do."""
    amounts: dict[str, float]
    """Amounts by the plain names of resources."""


def group_need(needs: Mapping[str, float]) -> GroupNeed | None:
    """What a call needs from a placement group; None if it needs nothing.

    >>> group_need({"CPU_group_1_29a129a129a129a1": 2.0, "CPU_group_29a129a129a129a1": 2.0})
    GroupNeed(group='29a129a129a129a1', bundle=1, amounts={'CPU': 2.0})
    """
    found = [(match, most) for name, most in needs.items() if (match := _OF_GROUP.match(name))]
    if not found:
        return None
    numbers = [int(match["bundle"]) for match, _ in found if match["bundle"]]
    return GroupNeed(
        found[0][0]["group"],
        min(numbers, default=None),
        {match["name"]: most for match, most in found if match["name"] != _PLACE},
    )
