"""Ray Train's own log of a worker, which states its run and rank.

Ray Train writes a log for each of its workers, ``train/ray-train-{app,sys}-worker-<worker id>.log``
in the session's folder of logs, one JSON object a line. Since its second version these carry
``run_name``, ``world_rank`` and ``local_rank`` beside the process (``LoggingManager`` of
``ray/train/v2/_internal/logging``). The worker's id is in the name of the file that its output goes
to.
"""

from __future__ import annotations

import os
from pathlib import Path

import msgspec

from ray_sentinel import regex as re
from ray_sentinel.evidence_file import ForeignFileError, open_evidence, uid_of
from ray_sentinel.progress.discovery.environment import ToldRank

MAX_READ = 1 << 20
"""Most bytes read of a log, from its end: the rank is on every line."""
MAX_NAME = 200
"""Most characters of a run's name; the rest is cut off."""

_OUTPUT = re.compile(r"^worker-(?P<worker>[0-9a-f]{16,})-[0-9a-f]{8}-\d+\.(?:out|err)$")
_WORLD = re.compile(rb"world_size=(\d{1,7})\b")


class _Line(msgspec.Struct):
    process: int
    run_name: str
    world_rank: int
    local_rank: int | None = None


_decoder = msgspec.json.Decoder(_Line)


def read_words(pid: int, proc: Path = Path("/proc")) -> ToldRank | None:
    """What Ray Train's log says about process ``pid``; None if it says nothing or we may not read
    it."""
    for path in _logs(proc / str(pid)):
        try:
            with open(open_evidence(path, uid_of(pid, str(proc))), "rb") as file:
                file.seek(max(0, file.seek(0, os.SEEK_END) - MAX_READ))
                words = parse_words(file.read(MAX_READ), pid)
        except (OSError, ForeignFileError):
            continue
        if words is not None:
            return words
    return None


def has_log(pid: int, proc: Path = Path("/proc")) -> bool:
    """Whether Ray Train has begun a log for process ``pid``, which makes it one of Train's
    workers."""
    return any(path.exists() for path in _logs(proc / str(pid)))


def parse_words(data: bytes, pid: int) -> ToldRank | None:
    """The last entry of a log about process ``pid``; lines of another form are ignored. The number
    of ranks is in it only if a torch process group was set up."""
    found: ToldRank | None = None
    for line in data.splitlines():
        try:
            told = _decoder.decode(line)
        except (ValueError, RecursionError):
            continue
        if told.process != pid or told.world_rank < 0 or not told.run_name:
            continue
        size = _WORLD.search(line)
        found = ToldRank(
            source="ray-train",
            job=told.run_name[:MAX_NAME],
            rank=told.world_rank,
            local_rank=told.local_rank,
            world_size=int(size[1]) if size else found.world_size if found else None,
        )
    return found


def _logs(folder: Path) -> list[Path]:
    for stream in ("2", "1"):
        try:
            output = Path(os.readlink(folder / "fd" / stream))
        except OSError:
            continue
        if match := _OUTPUT.match(output.name):
            train = output.parent / "train"
            worker = match["worker"]
            return [train / f"ray-train-{kind}-worker-{worker}.log" for kind in ("app", "sys")]
    return []
