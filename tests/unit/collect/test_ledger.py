"""Which processes belong to a collector's."""

from __future__ import annotations

import os

import msgspec

from ray_sentinel import process
from ray_sentinel.collect.ledger import FAMILY_VARIABLE, group_of, members


def test_a_family_is_no_older_than_its_first() -> None:
    child = process.spawn(["sleep", "60"], env={**os.environ, FAMILY_VARIABLE: "f00d"})
    try:
        group = group_of(child.pid, "f00d")
        elsewhere = msgspec.structs.replace(group, pid=os.getpid())
        assert members(elsewhere) == [child.pid], "by its variable alone"
        later = msgspec.structs.replace(elsewhere, start=group.start + 1)
        assert members(later) == [], "what was there before descends from nobody who came after"
    finally:
        process.end(child)
