"""py-spy's texts of a drawn job at its standstill, and looks at it that see only a part."""

from __future__ import annotations

import random
import zlib
from dataclasses import replace
from typing import NamedTuple

import msgspec

from ray_sentinel.evidence.stacks import classify_process, parse
from ray_sentinel.model.identity import ProcessId, RankId
from ray_sentinel.model.stacks import StackFact
from tests.support.recorder_fleet.cases import Case
from tests.support.recorder_fleet.clock import NEVER, TRANSFERS
from tests.support.recorder_fleet.shape import Todo, build

NOBODYS = ("outside", "healthy")
"""Faults of which no rank is to blame."""
STACK_HARMS = (
    "none",
    "none",
    "one missing",
    "some missing",
    "culprit missing",
    "one unreadable",
    "culprit unreadable",
    "cut",
)
C10D = {
    "_all_gather_base": "all_gather_into_tensor",
    "_reduce_scatter_base": "reduce_scatter_tensor",
    "all_to_all": "all_to_all_single",
}
"""PyTorch's functions, where they are not called like the operation."""
WAIT = "c10d::Work::wait (libtorch_cpu.so)"
MAIN = ("train_step (train.py:210)", "main (train.py:400)", "<module> (train.py:450)")
BARRED = "py-spy may not look (ptrace): allow it by ..."


class Place(NamedTuple):
    """Where a process stands: frames, the innermost first."""

    python: tuple[str, ...]
    native: tuple[str, ...] = ()
    """What a native look sees below them."""
    active: bool = False
    state: str = ""


LOADER = (
    "select (selectors.py:415)",
    "wait (multiprocessing/connection.py:947)",
    "_poll (multiprocessing/connection.py:440)",
    "get (multiprocessing/queues.py:113)",
    "_try_get_data (torch/utils/data/dataloader.py:1291)",
    "_next_data (torch/utils/data/dataloader.py:1505)",
)


def own_place(flavour: str, look: int) -> Place:
    """Where a rank stands whose own code holds it up."""
    return {
        "sleep": Place(("poll (data.py:8)",), ("clock_nanosleep (libc.so.6)", "time_sleep")),
        "loop": Place((f"tokenize (data.py:{31 + look})",), active=True),
        "works": Place((f"encode_{look} (tokens.py:{9 + look})", "batch (data.py:12)"), (), True),
        "input": Place(LOADER, ("epoll_wait (libc.so.6)",)),
        "lock": Place(("wait (threading.py:331)", "drain (buffer.py:40)")),
        "storage": Place(("write_record (torch/serialization.py:945)", "save (save.py:3)")),
        "network": Place(("readinto (socket.py:717)", "report (tracking.py:12)")),
        "compile": Place(("compile_fx (torch/_inductor/compile_fx.py:1800)",), (), True),
        "ray": Place(("get (ray/_private/worker.py:2800)", "weights (rl.py:77)")),
        "stopped": Place(("tokenize (data.py:31)",), state="T"),
        "blocked": Place(("read_shard (data.py:31)",), ("read (libc.so.6)",), state="D"),
    }[flavour]


FLAVOURS = ("sleep", "sleep", "sleep", "loop", "works", "input", "lock", "storage", "network",
            "compile", "ray", "stopped", "blocked")  # fmt: skip
"""Often it is code of the user's own, in which Python's frames show no known function."""
PIPELINES = ("pipeline.py", "megatron/core/pipeline_parallel/p2p_communication.py")
"""The program's own code of transfers, or a library's, which is known."""


def _in_call(todo: Todo, pipeline: str) -> Place:
    """Inside a call, at the line from which it is made."""
    described = todo.group.partition("/")[0]
    phase = "optimize" if described.startswith("DATA") else "layer"
    line = 10 + zlib.crc32(f"{described}/{todo.op}/{todo.numel // 1000}".encode()) % 300
    if todo.op == "batch":
        # The wait for transfers is C++: Python's frames end in the program.
        return Place((f"_communicate ({pipeline}:{line})",), (WAIT,))
    function = C10D.get(todo.op, todo.op)
    outer = f"{phase} (model.py:{line})"
    if todo.op in TRANSFERS:
        outer = f"_communicate ({pipeline}:{line})"
    frames = (
        f"{function} (torch/distributed/distributed_c10d.py:{2000 + len(function) * 37})",
        "wrapper (torch/distributed/c10d_logger.py:83)",
        outer,
    )
    return Place(frames, (WAIT,))


ITEM = Place(
    ("log_loss (train.py:77)",),
    ("cudaStreamSynchronize (libcudart.so.12)", "at::native::item (libtorch_cpu.so)"),
)
"""The host reads a number from its device."""
LEFT = Place(("destroy_process_group (torch/distributed/distributed_c10d.py:2146)",))
ENQUEUES = ("cuLaunchKernelEx (libcuda.so.1)", "ncclLaunchKernel (libnccl.so.2)")


def place_of(case: Case, rank: int, flavour: str, look: int) -> Place:
    """Where a rank of a job that has come to its standstill stands."""
    job = case.job
    made, calls, fault = job.made[rank], job.shape.todo[rank], job.faults.get(rank)
    if fault is not None and fault.kind == "host" and rank in job.hit:
        outside = case.fault == "outside"
        return own_place("input" if outside else flavour, look)
    if not made:
        return Place(("init_process_group (torch/distributed/distributed_c10d.py:1700)",))
    last, pipeline = made[-1], PIPELINES[job.shape.world % 3 == 0 or case.axes.layers > 1]
    site = last.todo
    if case.fault in ("op", "size", "dtype"):
        # A call that is made wrongly stands where the right one would.
        site = build(case.axes).todo[rank][len(made) - 1]
        site = replace(site, op=last.todo.op)
    if not last.launched:
        return _in_call(site, pipeline)._replace(native=ENQUEUES)
    if job.depth == 1 and last.end == NEVER:
        return _in_call(site, pipeline)
    if last.todo.blocks and last.seen == NEVER:
        return ITEM if last.todo.op != "barrier" else _in_call(site, pipeline)
    if len(made) < len(calls):
        return _in_call(calls[len(made)], pipeline)._replace(native=ENQUEUES)
    return LEFT


def text_of(rank: int, place: Place, native: bool) -> str:
    """As py-spy prints it."""
    pid = 1000 + rank
    frames = (*(place.native if native else ()), *place.python, *MAIN)
    state = "active" if place.active else "idle"
    body = "".join(f"    {frame}\n" for frame in frames)
    return (
        f"Process {pid}: python train.py\nPython v3.11.7 (/usr/bin/python3)\n\n"
        f'Thread {pid} ({state}): "MainThread"\n{body}'
    )


def looks_at(case: Case, rng: random.Random) -> tuple[list[list[StackFact]], str]:
    """One look or two at a job's ranks, and what was not to be seen."""
    world, harm = case.job.shape.world, rng.choice(STACK_HARMS)
    flavours = [rng.choice(FLAVOURS) for _ in range(world)]
    # One tool looks at all, or a better one fails for some.
    native = set(range(world)) if rng.random() < 0.5 else set()
    if native and rng.random() < 0.3:
        native -= set(rng.sample(range(world), max(1, world // 5)))
    culprit = rng.choice(sorted(case.culprits)) if case.culprits else rng.randrange(world)
    who = culprit if "culprit" in harm else rng.randrange(world)
    gone = {who} if harm.endswith("missing") else set()
    if harm == "some missing":
        gone = set(rng.sample(range(world), max(1, world // 4)))
    count = 2 if rng.random() < 0.6 else 1
    rounds = []
    for look in range(count):
        facts = []
        for rank in range(world):
            if rank in gone:
                continue
            if harm.endswith("unreadable") and rank == who:
                facts.append(_fact(rank, error=BARRED))
                continue
            place = place_of(case, rank, flavours[rank], look)
            text = text_of(rank, place, rank in native)
            if harm == "cut" and rng.random() < 0.3:
                text = text[: int(len(text) * rng.uniform(0.3, 1.0))]
            facts.append(_read(rank, text, place.state))
        rounds.append(facts)
    style = "calls wait" if case.job.depth == 1 else "calls return"
    tool = "Python" if not native else "native" if len(native) == world else "native for most"
    return rounds, f"{harm}, {count} look{'s' * (count > 1)}, {tool}, {style}"


def _process(rank: int) -> ProcessId:
    return ProcessId(f"node{rank // 8}", 1000 + rank, 1)


def _fact(rank: int, **fields: str) -> StackFact:
    return StackFact(process=_process(rank), rank=RankId("job", 0, rank), **fields)  # type: ignore[arg-type]


def _read(rank: int, text: str, state: str) -> StackFact:
    traces = parse(text.encode(), _process(rank))
    if not traces:
        return _fact(rank, error="nothing could be read")
    named = [msgspec.structs.replace(one, rank=RankId("job", 0, rank)) for one in traces]
    fact = classify_process(named)
    return msgspec.structs.replace(fact, state=state) if state else fact
