"""What a rank does to itself when the plan tells it to."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from x_ways import x_AGES, x_OWN_WAYS


class x_Trouble:
    """The plan of one rank: what to do to itself, where and when."""

    def __init__(self, plan: dict[str, Any], rank: int) -> None:
        self.plan, self.rank = plan, rank
        self.how: str = plan["how"].get(str(rank), "")

    def x_at(self, place: str, step: int) -> None:
        """Get into trouble if this is the place and the step for it."""
        here = place == self.plan["place"] and step == self.plan["step"]
        if here and self.how and self.how not in x_CHANGES:
            self.x_note()
            x_WAYS[self.how](self)

    def x_change(self, step: int, calls: list[Any], apart: tuple[int, ...]) -> list[Any]:
        """The step's collectives, some of them changed."""
        if step != self.plan["step"] or self.how not in x_CHANGES:
            return calls
        self.x_note()
        which = self.plan["variant"] % (len(calls) - 1) + self.plan["first_call"]
        if self.how == "order" and which in apart:
            which += 1
        return x_CHANGES[self.how](calls, min(which, len(calls) - 1))

    def x_note(self) -> None:
        """The moment, so that the time to the verdict is known."""
        Path(f"began-{self.rank}").write_text(repr(time.time()))

    @property
    def variant(self) -> int:
        return int(self.plan["variant"])


def x_skip(calls: list[Any], which: int) -> list[Any]:
    return calls[:which] + calls[which + 1 :]


def x_swap(calls: list[Any], which: int) -> list[Any]:
    other = which + 1 if which + 1 < len(calls) else which - 1
    changed = list(calls)
    changed[which], changed[other] = changed[other], changed[which]
    return changed


def x_resize(calls: list[Any], which: int) -> list[Any]:
    call, tensor = calls[which]
    # Of a few elements, twice as many may still travel alike.
    larger = torch.cat([tensor] * (2 + 512 // len(tensor)))
    return [*calls[:which], (call, larger), *calls[which + 1 :]]


def x_retype(calls: list[Any], which: int) -> list[Any]:
    call, tensor = calls[which]
    return [*calls[:which], (call, tensor.double()), *calls[which + 1 :]]


class x_Numbers(torch.utils.data.Dataset[torch.Tensor]):
    def __len__(self) -> int:
        return 8

    def __getitem__(self, index: int) -> torch.Tensor:
        if index == 2:
            time.sleep(x_AGES)
        return torch.ones(4) * index


def x_loader(trouble: x_Trouble) -> None:
    for _ in torch.utils.data.DataLoader(x_Numbers(), num_workers=1 + trouble.variant % 2):
        pass


class x_Left(Exception):
    """The rank leaves the training loop, and goes on behind it."""


def x_break(trouble: x_Trouble) -> None:
    raise x_Left


x_CHANGES: dict[str, Callable[[list[Any], int], list[Any]]] = {
    "skip": x_skip,
    "order": x_swap,
    "shape": x_resize,
    "dtype": x_retype,
}

x_WAYS: dict[str, Callable[[Any], None]] = {
    **x_OWN_WAYS,
    "loader": x_loader,
    "leave-loop": x_break,
}
