"""A phase of the training as a context manager."""

from __future__ import annotations

from types import TracebackType
from typing import Protocol


class Phased(Protocol):
    """What is told of phases, in pairs."""

    def begin_phase(self, name: str) -> tuple[str, float]:
        """Enter a phase; what it returns goes to ``end_phase``."""

    def end_phase(self, token: tuple[str, float]) -> None:
        """Leave it."""


class Phase:
    """The phase lasts as long as the ``with`` block; see ``ProgressWriter.phase``."""

    __slots__ = ("_name", "_token", "_told")

    def __init__(self, told: Phased, name: str) -> None:
        self._told, self._name = told, name

    def __enter__(self) -> Phase:
        self._token = self._told.begin_phase(self._name)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._told.end_phase(self._token)
