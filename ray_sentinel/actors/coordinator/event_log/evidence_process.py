"""Judges the evidence of recorded events anew, in bounded memory and time, whatever a log holds.

A log may come from anywhere, and be damaged: a few bytes unpack to gigabytes, and a number asks for
more. Evidence that asks for little is judged here. Any other costs a child, which ends at a
deadline, has limited memory, and dies with its parent. It is this module run as a program; the
evidence comes on stdin and the verdict goes to stdout, as MessagePack. What many events name is
judged once, and all evidence of one replay has a bound in seconds.
"""

from __future__ import annotations

import hashlib
import sys
from pathlib import Path

import msgspec

from ray_sentinel import process
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
from ray_sentinel.process.memory_limit import address_space, limit_address_space

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
        what = f"the evidence ({len(data) / 1e6:.1f} MB)"
        seconds = min(SECONDS, self._seconds)
        try:
            done = process.run(
                process.python_module(
                    "ray_sentinel.actors.coordinator.event_log.evidence_process",
                    tag,
                    str(self._memory),
                ),
                deadline=seconds,
                crowded=seconds,
                max_output=MOST_ANSWERS,
                input=data,
            )
        except OSError as error:
            raise InputError(f"{what}: no process to judge it could be started: {error}") from None
        if done.timed_out:
            raise InputError(f"{what} was not judged within {seconds:.0f} s")
        if done.truncated:
            raise InputError(f"{what} gives a verdict of more than {MOST_ANSWERS >> 20} MiB")
        if done.returncode == 1 and (said := done.stderr.decode("utf-8", "replace").strip()):
            raise InputError(said.splitlines()[-1][:300])
        if not done.ok:
            # A library that gets no memory may end the process itself.
            may = f"it may have {self._memory >> 20} MiB of memory"
            raise InputError(f"{what}: the process that judges it, {may}: {done.explain()}")
        return done.stdout


def _judged_here(tag: str, data: bytes) -> bytes | None:
    """The packed verdict on evidence that asks for little; None for other evidence. Raises
    InputError."""
    if len(data) > SMALL:
        return None
    kind = EVIDENCE[tag]
    if kind.weight(data, LIGHT) > LIGHT:
        return None
    return msgspec.msgpack.encode(kind.unpacked(data).explain())


def main() -> int:
    """Judge what comes on stdin: the kind is the first argument, the bytes of memory the second."""
    tag, memory = sys.argv[1], int(sys.argv[2])
    limit_address_space(address_space() + memory)
    try:
        facts = EVIDENCE[tag].unpacked(sys.stdin.buffer.read()).explain()
        answer = msgspec.msgpack.encode(facts)
    except InputError as error:
        sys.stderr.write(f"{error}\n")
        return 1
    except MemoryError:
        sys.stderr.write(f"judging its evidence takes more than {memory >> 20} MiB of memory\n")
        return 1
    sys.stdout.buffer.write(answer)
    return 0


if __name__ == "__main__":
    sys.exit(main())
