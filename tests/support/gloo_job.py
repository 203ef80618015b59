"""Real torch jobs on gloo that come to a standstill on purpose, and write their flight recorders.

Each rank writes ``FOLDER/at_RANK`` right before the call that the scenario is about; when
``FOLDER/dump`` appears, it writes ``FOLDER/trace_RANK.json`` (and ``FOLDER/pickle_RANK``), and
waits for its end.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.support.torch_ranks import TorchRanks
from tests.support.waiting import eventually

WORLD = 4
DEADLINE = 90.0
SETTLE = 4.0
"""Seconds from the last rank's mark to the dumps: many times what a call takes to be enqueued."""


def run(
    scenario: str, folder: Path, world: int = WORLD, settle: float = SETTLE
) -> dict[int, bytes]:
    """Run a scenario; the ranks' dumps in JSON. The pickles lie beside them."""
    # Not killed before all have dumped: a rank whose peer is gone ends with an error at once.
    with TorchRanks(_rank, scenario, world, folder):
        _all_have(folder, "at_*", world, "ranks come to the place")
        time.sleep(settle)
        (folder / "dump").touch()
        _all_have(folder, "trace_*.json", world, "ranks dump")
    return {rank: (folder / f"trace_{rank}.json").read_bytes() for rank in range(world)}


def _all_have(folder: Path, pattern: str, world: int, what: str) -> None:
    eventually(lambda: len(list(folder.glob(pattern))) == world, what, DEADLINE, every=0.05)


class Rank:
    """One rank of a scenario."""

    def __init__(self, rank: int, world: int, folder: Path) -> None:
        import torch
        import torch.distributed as dist

        self.torch: Any = torch
        self.dist: Any = dist
        self.rank, self.world, self.folder = rank, world, folder
        dist.init_process_group(
            "gloo", init_method=f"file://{folder}/store", rank=rank, world_size=world
        )
        half = world // 2
        self.low = dist.new_group(list(range(half)), group_desc="half")
        self.high = dist.new_group(list(range(half, world)), group_desc="half")
        self.mine = self.low if rank < half else self.high
        threading.Thread(target=self._dump, daemon=True).start()

    def all_reduce(self, size: int = 8, group: Any = None, dtype: Any = None) -> None:
        self.dist.all_reduce(self.torch.ones(size, dtype=dtype), group=group)

    def step(self) -> None:
        """A step of training that works."""
        self.all_reduce(16)
        self.all_reduce(8, self.mine)
        tensor = self.torch.ones(4)
        self.dist.broadcast(tensor, 0)
        self.dist.all_gather([self.torch.ones(4) for _ in range(self.world)], tensor)
        self.dist.barrier()

    def here(self) -> None:
        """Mark the place: what follows is what the scenario is about."""
        (self.folder / f"at_{self.rank}").touch()

    def sleep(self) -> None:
        time.sleep(2 * DEADLINE)

    def _dump(self) -> None:
        from torch._C._distributed_c10d import _dump_fr_trace, _dump_fr_trace_json

        while not (self.folder / "dump").exists():
            time.sleep(0.05)
        (self.folder / f"pickle_{self.rank}").write_bytes(_dump_fr_trace())
        part = self.folder / f"part_{self.rank}"
        part.write_bytes(_dump_fr_trace_json())
        part.rename(self.folder / f"trace_{self.rank}.json")


def sleeper(job: Rank) -> None:
    """Rank 2 sleeps before an all-reduce of everybody."""
    job.here()
    if job.rank == 2:
        job.sleep()
    job.all_reduce(32)


def left_out(job: Rank) -> None:
    """Rank 3 leaves out the all-reduce of its half, and goes on to the next of everybody."""
    job.here()
    if job.rank != 3:
        job.all_reduce(8, job.mine)
    job.all_reduce(32)


def mismatch(job: Rank) -> None:
    """Rank 1 scatters where the others are at a barrier."""
    job.here()
    if job.rank == 1:
        job.dist.scatter(job.torch.ones(4), src=0)
    job.dist.barrier()


def two_groups(job: Rank) -> None:
    """Rank 0 sleeps before the all-reduce of the low half; the high half waits for the low one."""
    job.here()
    if job.rank == 0:
        job.sleep()
    job.all_reduce(8, job.mine)
    job.all_reduce(32)


def pipeline(job: Rank) -> None:
    """Rank 1 sleeps before it sends on; gloo records no send and no receive."""
    tensor = job.torch.ones(8)
    for turn in range(2):
        if job.rank > 0:
            if turn == 1:
                job.here()
            job.dist.recv(tensor, job.rank - 1)
        if turn == 1:
            job.here()
        if job.rank == 1 and turn == 1:
            job.sleep()
        if job.rank < job.world - 1:
            job.dist.send(tensor, job.rank + 1)
    job.all_reduce(32)


def objects(job: Rank) -> None:
    """Rank 1 sleeps before an exchange of objects, which is several collectives in one call."""
    job.here()
    if job.rank == 1:
        job.sleep()
    job.dist.all_gather_object([None] * job.world, {"rank": job.rank})


def two_sleepers(job: Rank) -> None:
    """Rank 1 sleeps before the low half's all-reduce, rank 2 before the high half's."""
    job.here()
    if job.rank in (1, 2):
        job.sleep()
    job.all_reduce(8, job.mine)
    job.all_reduce(32)


def in_flight(job: Rank) -> None:
    """Everybody queues three operations, but rank 3 only one of them: it stopped in between."""
    tensors = [job.torch.ones(8) for _ in range(3)]
    works = []
    for number, tensor in enumerate(tensors):
        if number == 1:
            job.here()
            if job.rank == 3:
                job.sleep()
        works.append(job.dist.all_reduce(tensor, async_op=True))
    for work in works:
        work.wait()


def outside(job: Rank) -> None:
    """Everybody waits for something that no recorder sees."""
    job.here()
    job.sleep()


def busy(job: Rank) -> None:
    """No hang: rank 2 works for two seconds before each all-reduce, and the others wait for it."""
    job.here()
    while True:
        if job.rank == 2:
            time.sleep(2.0)
        job.all_reduce(32)


SCENARIOS: dict[str, Callable[[Rank], None]] = {
    function.__name__: function
    for function in (
        sleeper,
        left_out,
        mismatch,
        two_groups,
        pipeline,
        objects,
        two_sleepers,
        in_flight,
        outside,
        busy,
    )
}


def _rank(scenario: str, rank: int, world: int, folder: Path) -> None:
    job = Rank(rank, world, folder)
    for _ in range(3):
        job.step()
    SCENARIOS[scenario](job)
    job.sleep()
