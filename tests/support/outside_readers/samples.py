"""Real texts that are no files of their own below tests/fixtures, and what generators make."""

from __future__ import annotations

import functools
import sys

from ray_sentinel.evidence.flight_recorder import reduced
from tests.support.event_files import event, framed
from tests.support.log_corpus.in_ranks import nccl_timeout, oom_gpu
from tests.support.outside_readers.reader import FIXTURES
from tests.support.planted_secrets import FORMS, NAMED

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib


@functools.lru_cache(maxsize=1)
def printed() -> tuple[bytes, ...]:
    """What real jobs printed, and the logs of two jobs of the corpus to their failures."""
    cases = [
        case["text"].encode()
        for path in sorted((FIXTURES / "logs").glob("real_lines*.toml"))
        for case in tomllib.loads(path.read_text(encoding="utf-8"))["case"]
    ]
    jobs = [scenario(1)[0].text().encode()[-12_000:] for scenario in (nccl_timeout, oom_gpu)]
    return (*cases, *jobs)


@functools.lru_cache(maxsize=1)
def planted() -> tuple[bytes, ...]:
    """Texts with secrets, some in one."""
    every = [text for text, _ in (*FORMS, *NAMED)]
    return tuple("\n".join(every[at : at + 12]).encode() for at in range(0, len(every), 12))


def event_file() -> tuple[bytes, ...]:
    return (b"".join(framed(event(step)) for step in range(40)),)


def one_event() -> tuple[bytes, ...]:
    return (event(3, "train/loss", 2.0),)


def reduced_dumps() -> tuple[bytes, ...]:
    folder = FIXTURES / "flight_recorder/gloo_sleeper"
    return tuple(reduced.reduce(path.read_bytes()) for path in sorted(folder.glob("*.json")))
