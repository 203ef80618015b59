"""Phases for frameworks that report the begin and the end of something in separate calls."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Any

from ray_sentinel.sentinel import Sentinel


class Phases:
    """At most one phase at a time; beginning one ends the previous one."""

    def __init__(self) -> None:
        self._open: AbstractContextManager[Any] | None = None
        self.name = ""

    def begin(self, sentinel: Sentinel | None, name: str) -> None:
        """Enter a phase, unless it is already the current one."""
        if sentinel is None or name == self.name:
            return
        self.end()
        self._open, self.name = sentinel.phase(name), name
        self._open.__enter__()

    def end(self) -> None:
        """Back to training."""
        if self._open is not None:
            self._open.__exit__(None, None, None)
        self._open, self.name = None, ""


def numbers(metrics: Any, names: tuple[str, ...]) -> dict[str, float]:
    """The entries of ``metrics`` that are plain numbers and whose names contain one of ``names``.

    Tensors are left out: reading one waits for its device, and a monitor must not do that.
    """
    return {
        str(name): float(value)
        for name, value in dict(metrics).items()
        if isinstance(value, (int, float))
        and not isinstance(value, bool)
        and any(word in str(name) for word in names)
    }


TOLD = ("loss", "grad_norm", "learning_rate")
