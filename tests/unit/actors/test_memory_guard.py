"""The coordinator stays within its memory: what it takes falls until it does, or it says so."""

from __future__ import annotations

import subprocess
import sys

import pytest

from ray_sentinel.actors.coordinator.memory import MemoryGuard

MIB = 1 << 20


class Shedder:
    """What takes memory, in parts of so many MiB."""

    def __init__(self, *parts: int) -> None:
        self.parts = list(parts)

    def free_memory(self) -> str:
        if not self.parts:
            return ""
        self.parts.pop()
        return f"part {len(self.parts)}"

    def resident(self) -> int:
        return (40 + sum(self.parts)) * MIB


def test_nothing_goes_while_there_is_room() -> None:
    holder = Shedder(10, 10)
    guard = MemoryGuard(60 * MIB, holder.free_memory, holder.resident)
    guard.step()
    assert holder.parts == [10, 10]


def test_parts_go_until_there_is_room(caplog: pytest.LogCaptureFixture) -> None:
    holder = Shedder(10, 10, 10, 10)
    guard = MemoryGuard(60 * MIB, holder.free_memory, holder.resident)
    for _ in range(5):
        guard.step()
    assert holder.parts == [10, 10]
    assert not guard.exhausted
    assert "memory is short (80 of 60 MiB): less is kept of: part 3" in caplog.text


def test_garbage_goes_first_and_is_collected_once_while_memory_is_short() -> None:
    holder, garbage = Shedder(10, 10), [25, 25]
    collected: list[int] = []

    def collect() -> None:
        collected.append(garbage.pop())

    guard = MemoryGuard(
        80 * MIB,
        holder.free_memory,
        lambda: holder.resident() + sum(garbage) * MIB,
        collect,
    )
    guard.step()
    assert (len(collected), holder.parts) == (1, [10]), "what is left is too much"
    guard.step()
    assert (len(collected), holder.parts) == (1, [10])
    garbage.append(25)
    guard.step()
    assert (len(collected), holder.parts) == (2, [10])


def test_garbage_that_full_collections_leave_out_is_collected_when_memory_is_short() -> None:
    done = subprocess.run([sys.executable, "-c", FROZEN], check=False, timeout=30)
    assert done.returncode == 0


FROZEN = """
import gc, weakref
from ray_sentinel.actors.coordinator.memory import GarbageCollection
from ray_sentinel.actors.coordinator.memory import MemoryGuard

class Thing: pass

thing = Thing()
thing.me, seen = thing, weakref.ref(thing)
collection = GarbageCollection()
collection.step()
del thing
collection.step()
assert seen() is not None
guard = MemoryGuard(0, lambda: "")
guard.step()
assert seen() is None
"""


def test_where_nothing_is_left_it_is_said_until_there_is_room_again() -> None:
    holder = Shedder(30)
    guard = MemoryGuard(39 * MIB, holder.free_memory, holder.resident)
    guard.step()
    assert not guard.exhausted
    guard.step()
    assert guard.exhausted
    roomy = MemoryGuard(41 * MIB, holder.free_memory, holder.resident)
    roomy.step()
    assert not roomy.exhausted


REAL = """
import time
import msgspec
from ray_sentinel.actors.coordinator.engine_loop import EngineLoop
from ray_sentinel.actors.coordinator.memory import MemoryGuard
from ray_sentinel.clock import SystemClock
from ray_sentinel.engine.engine import Engine
from ray_sentinel.engine.telemetry.series import NodeTelemetry
from ray_sentinel.progress.proc.proc_stat import resident_bytes
from tests.support.samples import sampled

engine = Engine()
loop = EngineLoop(engine, SystemClock(), lambda action: None, None, 1 << 20)
before = resident_bytes()
values = {f'loss{{disk="{number}"}}': 1.0 for number in range(100)}
(batch,) = sampled(values)
for host in range(200):
    node = engine.view.telemetry.nodes.setdefault(str(host), NodeTelemetry())
    for at in range(300):
        told = msgspec.structs.replace(batch, stream="history", number=at + 1)
        node.add(told, time.time() - 1500 + 5 * at)
full = resident_bytes()
guard = MemoryGuard((before + full) // 2, loop.free_memory)
for step in range(12):
    guard.step()
print(before, full, resident_bytes(), guard.exhausted, loop.drop_counts)
"""


def test_what_is_let_go_is_given_back_to_the_system() -> None:
    answer = subprocess.run(
        [sys.executable, "-c", REAL], capture_output=True, text=True, timeout=60, check=True
    )
    before, full, after, exhausted, parts = answer.stdout.split(maxsplit=4)
    assert int(full) - int(before) > 40 * MIB
    assert int(after) <= (int(before) + int(full)) // 2
    assert exhausted == "False"
    assert parts.strip().startswith("{'history': ")


LARGE = """
import sys
from ray_sentinel.actors.coordinator.memory import fix_large_blocks
from ray_sentinel.progress.proc.proc_stat import resident_bytes

if sys.argv[1:]:
    fix_large_blocks()
size = 20 << 20
before = resident_bytes()
for _ in range(2):
    block = b"x" * size
    del block
print(resident_bytes() - before >> 20)
"""


def test_large_blocks_are_given_back_also_after_large_ones_were_freed() -> None:
    usual, fixed = (
        int(subprocess.check_output([sys.executable, "-c", LARGE, *given], timeout=60))
        for given in ([], ["fixed"])
    )
    assert usual >= 15
    assert fixed <= 2
