"""Which processes belong to a collector's."""

from __future__ import annotations

import os
from pathlib import Path

import msgspec

from ray_sentinel import process
from ray_sentinel.collect.child_registry import FAMILY_VARIABLE, group_of, members
from tests.support.waiting import eventually


def test_a_family_is_no_older_than_its_first() -> None:
    child = process.spawn(["sleep", "60"], env={**os.environ, FAMILY_VARIABLE: "f00d"})
    try:
        # What starts it is run first; and for a moment of each exec there is no environment.
        of_child = Path(f"/proc/{child.pid}")
        eventually(lambda: (of_child / "comm").read_text() == "sleep\n", "it sleeps", every=0.01)
        eventually(lambda: (of_child / "environ").read_bytes(), "its environment", every=0.01)
        group = group_of(child.pid, "f00d")
        elsewhere = msgspec.structs.replace(group, pid=os.getpid())
        assert members(elsewhere) == [(child.pid, group.start)], "by its variable alone"
        later = msgspec.structs.replace(elsewhere, start=group.start + 1)
        assert members(later) == [], "what was there before descends from nobody who came after"
    finally:
        process.end(child)
