"""Judges the evidence of recorded events anew, in bounded memory and time, whatever a log holds.

A log may come from anywhere, and be damaged: a few bytes unpack to gigabytes, and a number asks for
more. Evidence that asks for little is judged here, any other by this module run as a program
(``process.apart``). What many events name is judged once, and all evidence of one replay has a
bound in seconds.
"""

from __future__ import annotations

import hashlib
import sys
from pathlib import Path

import msgspec

from ray_sentinel.actors.coordinator.event_log.evidence_files import SMALL, read_evidence
from ray_sentinel.actors.coordinator.gathering.judged_evidence import (
    EVIDENCE,
    FACTS,
    Explained,
    Facts,
    tag_of,
)
from ray_sentinel.clock import Clock, SystemClock
from ray_sentinel.engine.events import StragglersKept
from ray_sentinel.errors import InputError
from ray_sentinel.process.apart import answer_apart, ask_apart

LIGHT = 1 << 20
"""Bytes that evidence may ask for to be judged in this process; objects take some 50 times that."""
MEMORY = 2 << 30
"""Most bytes of address space that the child may take beyond its program's."""
SECONDS = 60.0
"""Seconds that the child may take for one look: 8,192 ranks' recorders need some five."""
ALL_SECONDS = 900.0
"""Seconds that all evidence of one replay may take: a log holds some twenty looks of that size."""
MOST_ANSWERS = 16 << 20
"""Most bytes of verdicts that are remembered, and of a single one."""


class EvidenceJudge:
    """Judges the evidence of the events in one log anew, for one replay. Use it from one thread."""

    def __init__(
        self,
        folder: Path,
        *,
        clock: Clock | None = None,
        memory: int | None = None,
    ) -> None:
        """``memory`` bounds a child instead of ``MEMORY``."""
        self._folder = folder
        self._clock = clock or SystemClock()
        self._memory = memory or MEMORY
        self._seconds = ALL_SECONDS
        self._answers: dict[tuple[str, bytes], bytes | str] = {}
        """Packed verdicts, or why there is none, by kind and digest of the evidence; those that
        were wanted longest ago first."""
        self._size = 0

    def facts(self, event: Explained | StragglersKept) -> Facts:
        """What this version makes of an event's evidence. Raises InputError if it has none, or none
        that can be judged within the bounds."""
        if event.judged_from is None:
            raise InputError("it is of a version that kept none")
        data = read_evidence(self._folder, event.judged_from)
        tag = tag_of(event)
        key = tag, hashlib.sha256(data).digest()
        answer = self._answers.pop(key, None)
        if answer is None:
            answer = self._judged(tag, data)
            self._size += len(answer)
        self._answers[key] = answer
        self._forget()
        if isinstance(answer, str):
            raise InputError(answer)
        try:
            return msgspec.msgpack.decode(answer, type=FACTS[tag])
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise InputError(f"the verdict on it cannot be read: {error}") from None

    def _forget(self) -> None:
        while self._size > MOST_ANSWERS:
            self._size -= len(self._answers.pop(next(iter(self._answers))))

    def _judged(self, tag: str, data: bytes) -> bytes | str:
        if self._seconds <= 0:
            raise InputError(f"all evidence of this log took {ALL_SECONDS:g} s before it")
        begun = self._clock.monotonic()
        try:
            answer = _judged_here(tag, data)
            return answer if answer is not None else self._judged_apart(tag, data)
        except InputError as error:
            return str(error)
        finally:
            self._seconds -= self._clock.monotonic() - begun

    def _judged_apart(self, tag: str, data: bytes) -> bytes:
        seconds = min(SECONDS, self._seconds)
        return ask_apart(
            "ray_sentinel.actors.coordinator.event_log.evidence_process",
            tag,
            what=f"the evidence ({len(data) / 1e6:.1f} MB)",
            seconds=seconds,
            memory=self._memory,
            input=data,
            most=MOST_ANSWERS,
            crowded=seconds,
        )


def _judged_here(tag: str, data: bytes) -> bytes | None:
    """The packed verdict on evidence that asks for little; None for other evidence. Raises
    InputError."""
    if len(data) > SMALL:
        return None
    kind = EVIDENCE[tag]
    if kind.weight(data, LIGHT) > LIGHT:
        return None
    return msgspec.msgpack.encode(kind.unpacked(data).explain())


def _explain(arguments: list[str]) -> bytes:
    """The packed verdict on what comes on standard input, of the kind that is the argument."""
    return msgspec.msgpack.encode(
        EVIDENCE[arguments[0]].unpacked(sys.stdin.buffer.read()).explain()
    )


if __name__ == "__main__":
    sys.exit(answer_apart(_explain))
