"""Jobs drawn at random: their groups and what every rank calls."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Todo:
    """One call of a host."""

    group: str
    op: str
    stream: str
    """Calls of one stream run on the device one after the other."""
    numel: int = 1024
    dtype: str = "BFloat16"
    peer: int = -1
    """Global rank, of a send or a receive."""
    parts: tuple[Todo, ...] = ()
    blocks: bool = False
    """The host waits for it before its next call."""
    after: tuple[str, ...] = ()
    """Streams that must have come as far as this call before it starts."""


@dataclass
class Shape:
    """A job: groups by key as (description, ranks), and each rank's calls."""

    title: str
    world: int
    groups: dict[str, tuple[str, tuple[int, ...]]] = field(default_factory=dict)
    todo: list[list[Todo]] = field(default_factory=list)
    last_sync: list[list[int]] = field(default_factory=list)
    """For each rank the places in its calls right after a wait for everybody."""


@dataclass(frozen=True)
class Axes:
    """How many ranks along each axis, and the style of the program."""

    tp: int = 1
    cp: int = 1
    pp: int = 1
    dp: int = 1
    experts: bool = False
    layers: int = 2
    micro: int = 3
    steps: int = 3
    batched: bool = False
    pair_groups: bool = False
    """Stages talk over the default group instead of over one of their own."""
    overlap: bool = True
    """Gradient reductions on a stream of their own."""
    moe_sync: bool = False
    """The host reads how many tokens go where."""

    @property
    def world(self) -> int:
        return self.tp * self.cp * self.pp * self.dp


def draw(rng: random.Random) -> Axes:
    """Any combination with at most 16 ranks."""
    while True:
        axes = Axes(
            tp=rng.choice((1, 1, 2, 4)),
            cp=rng.choice((1, 1, 1, 2)),
            pp=rng.choice((1, 1, 2, 4)),
            dp=rng.choice((1, 2, 2, 4, 8)),
            experts=rng.random() < 0.35,
            layers=rng.choice((1, 2, 3)),
            micro=rng.choice((1, 2, 4)),
            batched=rng.random() < 0.5,
            pair_groups=rng.random() < 0.2,
            overlap=rng.random() < 0.6,
            moe_sync=rng.random() < 0.5,
        )
        if 4 <= axes.world <= 16:
            return axes


def build(axes: Axes) -> Shape:
    """The job along these axes, ranks in the order tensor, context, data, pipeline."""
    title = "".join(
        f"{name}{size}"
        for name, size in (("tp", axes.tp), ("cp", axes.cp), ("dp", axes.dp), ("pp", axes.pp))
        if size > 1
    )
    shape = Shape(title + ("ep" if axes.experts else ""), axes.world)
    shape.groups["world"] = ("default_pg", tuple(range(axes.world)))
    for rank in range(axes.world):
        shape.todo.append([])
        shape.last_sync.append([])
        _Rank(axes, shape, rank).write()
    return shape


class _Rank:
    """Writes one rank's program."""

    def __init__(self, axes: Axes, shape: Shape, rank: int) -> None:
        self.axes, self.shape, self.rank = axes, shape, rank
        rest, self.t = divmod(rank, axes.tp)
        rest, self.c = divmod(rest, axes.cp)
        self.s, self.d = divmod(rest, axes.dp)
        self.calls = shape.todo[rank]
        self.tp = self._group("TENSOR_MODEL_PARALLEL_GROUP", lambda i: self.at(t=i), axes.tp)
        self.cp = self._group("CONTEXT_PARALLEL_GROUP", lambda i: self.at(c=i), axes.cp)
        self.dp = self._group("DATA_PARALLEL_GROUP", lambda i: self.at(d=i), axes.dp)
        self.pp = self._group("PIPELINE_MODEL_PARALLEL_GROUP", lambda i: self.at(s=i), axes.pp)
        stage = range(
            self.s * axes.tp * axes.cp * axes.dp, (self.s + 1) * axes.tp * axes.cp * axes.dp
        )
        self.ep = self._add("EXPERT_MODEL_PARALLEL_GROUP", tuple(stage)) if axes.experts else ""

    def at(self, **place: int) -> int:
        """The rank at these coordinates, mine where not given."""
        t, c, d, s = (place.get(k, getattr(self, k)) for k in "tcds")
        axes = self.axes
        return ((s * axes.dp + d) * axes.cp + c) * axes.tp + t

    def _group(self, desc: str, member: Callable[[int], int], size: int) -> str:
        return self._add(desc, tuple(member(i) for i in range(size))) if size > 1 else ""

    def _add(self, desc: str, ranks: Sequence[int]) -> str:
        key = f"{desc}/{ranks[0]}/{len(ranks)}/{ranks[-1]}"
        self.shape.groups[key] = (desc, tuple(ranks))
        return key

    def write(self) -> None:
        self._sync("barrier")
        for step in range(self.axes.steps):
            self._batch()
            for _ in range(self.axes.micro):
                self._forward()
            for _ in range(self.axes.micro):
                self._backward()
            self._optimize(step)

    def _do(self, group: str, op: str, stream: str, numel: int, **more: object) -> None:
        if group:
            self.calls.append(Todo(group, op, stream, numel, **more))  # type: ignore[arg-type]

    def _sync(self, op: str = "all_reduce") -> None:
        self._do("world", op, "main", 1, dtype="Float", blocks=True)
        self.shape.last_sync[self.rank].append(len(self.calls))

    def _batch(self) -> None:
        self._do(self.tp, "broadcast", "main", 7, dtype="Long")
        self._do(self.tp, "broadcast", "main", 4096, dtype="Long")

    def _talk(self, op: str, stage: int, numel: int) -> None:
        if not 0 <= stage < self.axes.pp or self.axes.pp == 1:
            return
        group = "world" if self.axes.pair_groups else self.pp
        part = Todo(group, op, f"p2p{self.at(s=stage)}", numel, peer=self.at(s=stage))
        if self.axes.batched:
            stream = f"{group}/batch"
            self.calls.append(Todo(group, "batch", stream, parts=(part,), after=("main",)))
        else:
            self.calls.append(Todo(**{**part.__dict__, "after": ("main",)}))

    def _layer(self, numel: int) -> None:
        self._do(self.tp, "_all_gather_base", "main", numel)
        if self.cp:
            near = [self.at(c=(self.c + step) % self.axes.cp) for step in (1, -1)]
            parts = (
                Todo(self.cp, "send", "", numel, peer=near[0]),
                Todo(self.cp, "recv", "", numel, peer=near[1]),
            )
            self.calls.append(Todo(self.cp, "batch", "main", parts=parts))
        self._do(self.tp, "_reduce_scatter_base", "main", numel)
        if self.ep:
            self._do(self.ep, "_all_gather_base", "main", 8, dtype="Int", blocks=self.axes.moe_sync)
            self._do(self.ep, "all_to_all", "main", numel + 31 * self.rank)
            self._do(self.ep, "all_to_all", "main", numel + 17 * self.rank)

    def _forward(self) -> None:
        self._talk("recv", self.s - 1, 2048)
        for layer in range(self.axes.layers):
            self._layer(1000 + layer)
        self._talk("send", self.s + 1, 2048)

    def _backward(self) -> None:
        self._talk("recv", self.s + 1, 2048)
        for layer in range(self.axes.layers):
            self._layer(2000 + layer)
        self._talk("send", self.s - 1, 2048)

    def _optimize(self, step: int) -> None:
        stream = "grads" if self.axes.overlap else "main"
        for bucket in range(2):
            more = {"after": ("main",)} if self.axes.overlap else {}
            self._do(self.dp, "_reduce_scatter_base", stream, 50_000 + bucket, **more)
        for bucket in range(2):
            self._do(self.dp, "_all_gather_base", stream, 50_000 + bucket)
        if step == 1:
            self._do("world", "broadcast", "main", 3, dtype="Byte")
        self.calls.append(
            Todo("world", "all_reduce", "main", 1, "Float", blocks=True, after=("grads",))
        )
        self.shape.last_sync[self.rank].append(len(self.calls))
