"""What files of tests share, one after the other, in one process."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Collection
from typing import ClassVar, Generic, TypeVar

T = TypeVar("T")


class Lasting(Generic[T]):
    """Begins when a file first asks for it, by a fixture of this name. It ends when a file begins
    that does not: a cluster that is still watched, or a connection to it, would be in its way."""

    _living: ClassVar[dict[str, contextlib.ExitStack]] = {}
    """What ends each."""

    def __init__(self, fixture: str, begin: Callable[[contextlib.ExitStack], T]) -> None:
        """``begin`` leaves what is to be undone."""
        self.fixture, self._begin = fixture, begin
        self._made: list[T] = []

    def get(self) -> T:
        """It, begun if it is not there."""
        if self.fixture not in self._living:
            with contextlib.ExitStack() as undo:
                self._made[:] = [self._begin(undo)]
                self._living[self.fixture] = undo.pop_all()
        return self._made[0]

    def end(self) -> None:
        """End it, if it is there."""
        if (undo := self._living.pop(self.fixture, None)) is not None:
            undo.close()

    @classmethod
    def end_all_but(cls, fixtures: Collection[str]) -> None:
        """End those that none of these fixtures gives."""
        for name in cls._living.keys() - set(fixtures):
            cls._living.pop(name).close()
