"""What ranks do: groups, and each rank's sequence of calls, for every layout under test."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace


@dataclass(frozen=True)
class Call:
    """One call of a rank."""

    group: str
    op: str
    """A collective's name, "send", "recv" or "batch"."""
    size: int = 64
    dtype: str = "Float"
    peer: int | None = None
    """Global rank."""
    parts: tuple[Call, ...] = ()
    detached: bool = False
    """Later calls do not wait for it on the device (async_op=True)."""
    sync: bool = False
    """The host waits for it (.item())."""


@dataclass
class Job:
    """A layout with its programs."""

    name: str
    world: int
    groups: dict[str, tuple[str, tuple[int, ...]]] = field(default_factory=dict)
    """key → (description, ranks), in the order of creation."""
    programs: list[list[Call]] = field(default_factory=list)

    def group(self, key: str, desc: str, ranks: tuple[int, ...]) -> str:
        self.groups.setdefault(key, (desc, ranks))
        return key


Layout = Callable[[], Job]
STEPS = 3


def _job(name: str, world: int) -> Job:
    job = Job(name, world)
    job.group("world", "default_pg", tuple(range(world)))
    job.programs = [[Call("world", "barrier", 1, sync=True)] for _ in range(world)]
    return job


def data_parallel(world: int = 8) -> Job:
    job = _job("data parallel 8", world)
    for rank in range(world):
        for step in range(STEPS):
            job.programs[rank] += [
                *(Call("world", "all_reduce", 100 + 50 * i, detached=True) for i in range(4)),
                Call("world", "all_reduce", 1, sync=True),
            ]
            if step == 1:
                job.programs[rank].append(Call("world", "broadcast", 8))
    return job


def tensor_data(tp: int = 2, dp: int = 4) -> Job:
    world = tp * dp
    job = _job(f"tensor {tp} x data {dp}", world)
    for i in range(dp):
        job.group(f"tp{i}", "TENSOR", tuple(range(i * tp, i * tp + tp)))
    for j in range(tp):
        job.group(f"dp{j}", "DATA", tuple(range(j, world, tp)))
    for rank in range(world):
        t, d = f"tp{rank // tp}", f"dp{rank % tp}"
        for _ in range(STEPS):
            job.programs[rank] += [
                Call(t, "broadcast", 16),
                Call(t, "all_reduce", 256),
                Call(t, "_all_gather_base", 128),
                Call(t, "_reduce_scatter_base", 96),
                Call(t, "all_reduce", 200),
                Call(d, "all_reduce", 1000, detached=True),
                Call(d, "all_reduce", 1200, detached=True),
                Call("world", "all_reduce", 1, sync=True),
            ]
    return job


def _straight_step(
    stage: int, stages: int, to: Callable[[int], int], key: str, batched: bool, inner: list[Call]
) -> list[Call]:
    """Forward and backward of three micro-batches, one transfer at a time or as batches of one."""

    def talk(op: str, other: int, size: int) -> list[Call]:
        if not 0 <= other < stages:
            return []
        part = Call(key, op, size, peer=to(other))
        return [Call(key, "batch", parts=(part,)) if batched else part]

    calls: list[Call] = []
    for _ in range(3):
        calls += talk("recv", stage - 1, 512) + inner + talk("send", stage + 1, 512)
    for _ in range(3):
        calls += talk("recv", stage + 1, 640) + inner + talk("send", stage - 1, 640)
    return calls


def _one_forward_one_backward(
    stage: int, stages: int, to: Callable[[int], int], key: str, inner: list[Call]
) -> list[Call]:
    """1F1B with batched exchanges (send forward and receive backward in one batch)."""
    micro = stages + 2
    warmup = stages - stage - 1
    first, last = stage == 0, stage == stages - 1

    def batch(*parts: Call | None) -> list[Call]:
        real = tuple(part for part in parts if part is not None)
        return [Call(key, "batch", parts=real)] if real else []

    recv_f = None if first else Call(key, "recv", 512, peer=to(stage - 1))
    send_f = None if last else Call(key, "send", 512, peer=to(stage + 1))
    recv_b = None if last else Call(key, "recv", 640, peer=to(stage + 1))
    send_b = None if first else Call(key, "send", 640, peer=to(stage - 1))
    calls: list[Call] = []
    for _ in range(warmup):
        calls += batch(recv_f) + inner + batch(send_f)
    calls += batch(recv_f)
    for i in range(micro - warmup):
        calls += inner + batch(send_f, recv_b) + inner
        calls += batch(send_b, recv_f) if i < micro - warmup - 1 else batch(send_b)
    for _ in range(warmup):
        calls += batch(recv_b) + inner + batch(send_b)
    return calls


def pipeline(stages: int = 4, *, batched: bool = False, world_group: bool = False) -> Job:
    job = _job(f"pipeline {stages}" + (" batched" if batched else ""), stages)
    key = "world"
    if not world_group:
        key = job.group("pp", "PIPELINE", tuple(range(stages)))
    for rank in range(stages):
        for _ in range(STEPS):
            if batched:
                job.programs[rank] += _one_forward_one_backward(rank, stages, lambda s: s, key, [])
            else:
                job.programs[rank] += _straight_step(rank, stages, lambda s: s, key, False, [])
            job.programs[rank].append(Call("world", "all_reduce", 1, sync=True))
    return job


def expert(ep: int = 4, dp: int = 2) -> Job:
    world = ep * dp
    job = _job(f"expert {ep} x data {dp}", world)
    for i in range(dp):
        job.group(f"ep{i}", "EXPERT", tuple(range(i * ep, i * ep + ep)))
    for j in range(ep):
        job.group(f"edp{j}", "EXPERT_DATA", tuple(range(j, world, ep)))
    for rank in range(world):
        e, d = f"ep{rank // ep}", f"edp{rank % ep}"
        for _ in range(STEPS):
            for layer in range(2):
                job.programs[rank] += [
                    Call(e, "_all_gather_base", 16, "Long", sync=layer == 0),
                    Call(e, "all_to_all", 300 + rank * 7),
                    Call(e, "all_to_all", 300 + rank * 3),
                ]
            job.programs[rank] += [
                Call(d, "all_reduce", 900, detached=True),
                Call("world", "all_reduce", 1000, detached=True),
                Call("world", "all_reduce", 1, sync=True),
            ]
    return job


def sharded_tensor(fsdp: int = 4, tp: int = 2) -> Job:
    world = fsdp * tp
    job = _job(f"sharded {fsdp} x tensor {tp}", world)
    for i in range(fsdp):
        job.group(f"tp{i}", "undefined", tuple(range(i * tp, i * tp + tp)))
    for j in range(tp):
        job.group(f"fs{j}", "undefined", tuple(range(j, world, tp)))
    for rank in range(world):
        t, f = f"tp{rank // tp}", f"fs{rank % tp}"
        for _ in range(STEPS):
            for layer in range(3):
                job.programs[rank] += [
                    Call(f, "_all_gather_base", 400 + layer),
                    Call(t, "all_reduce", 128),
                ]
            for layer in range(3):
                job.programs[rank] += [
                    Call(f, "_all_gather_base", 400 + layer),
                    Call(t, "all_reduce", 128),
                    Call(f, "_reduce_scatter_base", 500 + layer, detached=True),
                ]
            job.programs[rank].append(Call("world", "all_reduce", 1, sync=True))
    return job


def three_dimensional(tp: int = 2, pp: int = 2, dp: int = 2, *, batched: bool = False) -> Job:
    """Ranks in Megatron's order: tensor fastest, then data, then pipeline."""
    world = tp * pp * dp
    job = _job(f"tensor {tp} x data {dp} x pipeline {pp}" + (" batched" if batched else ""), world)
    per_stage = tp * dp
    for base in range(0, world, tp):
        job.group(f"tp{base}", "TENSOR", tuple(range(base, base + tp)))
    for s in range(pp):
        for t in range(tp):
            ranks = tuple(range(s * per_stage + t, (s + 1) * per_stage, tp))
            job.group(f"dp{s}.{t}", "DATA", ranks)
    for i in range(per_stage):
        job.group(f"pp{i}", "PIPELINE", tuple(range(i, world, per_stage)))
    for rank in range(world):
        stage, place = divmod(rank, per_stage)
        t, d, p = f"tp{rank // tp * tp}", f"dp{stage}.{rank % tp}", f"pp{place}"
        inner = [Call(t, "_all_gather_base", 128), Call(t, "_reduce_scatter_base", 96)]
        to = lambda s, place=place: s * per_stage + place  # noqa: E731
        for _ in range(STEPS):
            if batched:
                job.programs[rank] += _one_forward_one_backward(stage, pp, to, p, inner)
            else:
                job.programs[rank] += _straight_step(stage, pp, to, p, False, inner)
            job.programs[rank] += [
                Call(d, "all_reduce", 1000, detached=True),
                Call(d, "all_reduce", 1500, detached=True),
                Call("world", "all_reduce", 1, sync=True),
            ]
    return job


def mixture(tp: int = 2, pp: int = 4, dp: int = 2) -> Job:
    """Mixture of experts with pipeline and tensor groups; expert groups span a stage."""
    world = tp * pp * dp
    job = _job(f"experts in tensor {tp} x data {dp} x pipeline {pp}", world)
    per_stage = tp * dp
    for base in range(0, world, tp):
        job.group(f"tp{base}", "TENSOR", tuple(range(base, base + tp)))
    for i in range(per_stage):
        job.group(f"pp{i}", "PIPELINE", tuple(range(i, world, per_stage)))
    for s in range(pp):
        stage_ranks = tuple(range(s * per_stage, (s + 1) * per_stage))
        job.group(f"tdp{s}", "TENSOR_AND_DATA", stage_ranks)
        job.group(f"ep{s}", "EXPERT", stage_ranks)
    for rank in range(world):
        stage, place = divmod(rank, per_stage)
        t, e, p = f"tp{rank // tp * tp}", f"ep{stage}", f"pp{place}"
        inner = [
            Call(t, "_all_gather_base", 128),
            Call(e, "all_to_all", 256 + rank),
            Call(e, "all_to_all", 250 + rank),
            Call(t, "_reduce_scatter_base", 96),
        ]
        to = lambda s, place=place: s * per_stage + place  # noqa: E731
        for _ in range(STEPS):
            job.programs[rank].append(Call(t, "broadcast", 8, "Long"))
            steps = _straight_step(stage, pp, to, p, False, inner)
            job.programs[rank] += [replace(call, detached=call.op == "send") for call in steps]
            job.programs[rank] += [
                Call(f"tdp{stage}", "all_reduce", 264),
                Call("world", "all_reduce", 1, sync=True),
            ]
    return job


LAYOUTS: dict[str, Layout] = {
    "dp8": data_parallel,
    "tp2dp4": tensor_data,
    "pp4": pipeline,
    "pp4batch": lambda: pipeline(batched=True),
    "pp4world": lambda: pipeline(world_group=True),
    "ep4dp2": expert,
    "fsdp4tp2": sharded_tensor,
    "3d8": three_dimensional,
    "3d16": lambda: three_dimensional(2, 4, 2),
    "3d16batch": lambda: three_dimensional(2, 4, 2, batched=True),
    "moe16": mixture,
}
