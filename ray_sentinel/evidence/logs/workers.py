"""Which process is which rank, where a launcher lists its workers.

Ray Train prints when its workers have started (``ray/train/v2/_internal/execution/worker_group``)::

    - (ip=10.0.0.2, pid=4711) world_rank=3, local_rank=1, node_rank=0

with ``node_id=...,`` before the address in its first version.
"""

from __future__ import annotations

from ray_sentinel import regex as re
from ray_sentinel.evidence.logs.lines import Origin

HINT = b"world_rank="
_RAY_TRAIN = re.compile(
    rb"\((?:node_id=\w+, )?ip=(?P<ip>[0-9A-Fa-f.:]+), pid=(?P<pid>\d{1,9})\) "
    rb"world_rank=(?P<rank>\d{1,9}), local_rank=(?P<local>\d{1,9})\b"
)
_MOST = 16_384


def listed_workers(data: bytes) -> list[Origin]:
    """The workers that ``data`` lists, at most 16,384."""
    if HINT not in data:
        return []
    return [
        Origin(
            rank=int(match["rank"]),
            local_rank=int(match["local"]),
            pid=int(match["pid"]),
            ip=match["ip"].decode("ascii"),
        )
        for match, _ in zip(_RAY_TRAIN.finditer(data), range(_MOST), strict=False)
    ]
