"""What is garbage goes, also where most of what there is is left out."""

from __future__ import annotations

import subprocess
import sys

# In a process of its own: the collector is the whole process's.
STORY = """
import gc, weakref
from ray_sentinel.actors.coordinator.memory import WHOLE_TURNS, GarbageCollection

class Node:
    pass

def cycle():
    one, other = Node(), Node()
    one.other, other.other = other, one
    return one

subject = GarbageCollection()
subject.step()
assert gc.isenabled()

# Python's own collections never are full ones.
full = []
gc.callbacks.append(lambda phase, info: full.append(phase) if info["generation"] == 2 else None)
kept = [[[number]] for number in range(300_000)]
assert not full or sys.version_info >= (3, 14)

# What became garbage since the last turn goes with the next, what survives is left out.
seen = weakref.ref(cycle())
old = cycle()
before = weakref.ref(old)
subject.step()
assert seen() is None
assert before() is not None
gc.collect()
assert len(gc.get_objects()) < 10_000 < 300_000 <= gc.get_freeze_count()

# And what becomes garbage later, once everything is examined.
del old
for turn in range(2, WHOLE_TURNS):
    subject.step()
    assert before() is not None
subject.step()
assert before() is None

# What has no cycles goes at once.
alone = Node()
gone = weakref.ref(alone)
subject.step()
del alone
assert gone() is None
"""


def test_cycles_are_collected_in_time_and_what_stays_is_left_out() -> None:
    told = subprocess.run(
        [sys.executable, "-c", "import sys\n" + STORY], capture_output=True, text=True, timeout=60
    )
    assert told.returncode == 0, told.stderr
