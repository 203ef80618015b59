"""Real texts, damaged at random but always alike: readers give the package's own errors or none."""

from __future__ import annotations

import contextlib
import random
import time

import pytest

from ray_sentinel.errors import SentinelError
from tests.support.hostile_text import mutated
from tests.support.outside_readers import READERS, Reader

ROUNDS = 60
MOST = 16 << 10
"""Bytes of a real text that are taken, from its end: there a job fails."""
SECONDS = 2.0
"""Of CPU time, for one text."""

FOUND: list[tuple[str, bytes]] = [
    (
        "NCCL RAS: a section",
        b"NCCL version 2.28.9 x\n#0-0 (ab12) MISMATCH\n"
        b"  Communicator ranks have different AllReduce operation counts\n"
        b"    26 ranks have launched up to operation 12\n"
        b"    2 ranks have status FINALIZE\n"
        b"    Rank 4 -- GPU 4 managed by process 507289 on node 172.16.64.210\n"
        b"    Rank 5 -- GPU 5 managed by process 507290 on node 172.16.64.210\n",
    ),
    ("exposition: of a plugin", b"x_total " + b"9" * 400),
    ("exposition: of a plugin", b"x_total 1 " + b"9" * 400),
    ("ray status", b" 2.0/8.0 GPU\nActive:\n " + b"9" * 5000 + b" node_abc"),
    ("ray status", b" .2.0/8.0 GPU\n"),
    ("proc: schedstat", b"9" * 400 + b" 1 1"),
]
"""What many more rounds than ``ROUNDS`` have found."""

WITH_SAMPLES = [reader for reader in READERS if reader.fixtures or reader.made]


@pytest.mark.parametrize("reader", WITH_SAMPLES, ids=lambda reader: reader.name)
def test_damaged_texts_give_no_error_but_our_own(reader: Reader) -> None:
    samples = reader.samples()
    assert samples
    for number in range(ROUNDS):
        chance = random.Random(f"{reader.name} {number}")
        text = mutated(chance.choice(samples)[-MOST:], reader.words, chance)
        began = time.process_time()
        try:
            reader.read(text)
        except (SentinelError, *reader.errors):
            pass
        except Exception as error:
            raise AssertionError(f"text {number}: {text[:2000]!r}") from error
        assert time.process_time() - began < SECONDS, f"text {number}: {text[:2000]!r}"


@pytest.mark.parametrize(("name", "text"), FOUND)
def test_what_was_found(name: str, text: bytes) -> None:
    reader = next(reader for reader in READERS if reader.name == name)
    with contextlib.suppress(SentinelError, *reader.errors):
        reader.read(text)
