"""The layout of a record, and reading it while it is written."""

import math
import struct

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ray_sentinel.progress import record
from ray_sentinel.progress.identity import RankIdentity, decode, encode
from ray_sentinel.progress.rank.notes import clip

UNTIMED = settings(deadline=None)
BLOCKS = (record.PHASE, record.IDENTITY, record.WORDS, record.NAMES)


def test_parts_do_not_overlap_and_fit():
    parts = [
        (0, record.HEADER.size),
        (record.STAMP_OFFSET, record.STAMP.size),
        (record.COMPANION_TID_OFFSET, 8),
        (record.STEPPING_TID_OFFSET, 8),
        (record.WATCHDOG_OFFSET, 8),
        (record.REQUEST_OFFSET, 8),
        (record.ANSWER_OFFSET, 8),
        (record.SCALARS_OFFSET, record.SCALARS.size),
        (record.STEPS_OFFSET, record.STEPS * record.STEP.size),
        *((block.offset, 2 * block.slot) for block in BLOCKS),
    ]
    ends = 0
    for offset, size in sorted(parts):
        assert offset >= ends
        assert offset % 8 == 0
        ends = offset + size
    assert ends <= record.SIZE


@UNTIMED
@given(st.lists(st.binary(max_size=200), min_size=1, max_size=5), st.sampled_from(BLOCKS))
def test_the_newest_content_of_a_block_is_read(contents, block):
    buffer = bytearray(record.SIZE)
    for sequence, data in enumerate(contents, 1):
        record.store(buffer, block, sequence, data)
    copy = bytes(buffer)
    assert record.load(copy, copy, block) == (len(contents), contents[-1])
    for other in BLOCKS:
        if other is not block:
            assert record.load(copy, copy, other) is None


def test_too_long_for_a_block():
    with pytest.raises(ValueError, match="do not fit"):
        record.store(bytearray(record.SIZE), record.PHASE, 1, bytes(record.PHASE.capacity + 1))


def test_a_writer_stopped_within_a_store_leaves_the_content_before():
    buffer = bytearray(record.SIZE)
    record.store(buffer, record.PHASE, 1, b"before")
    start = record.PHASE.offset
    record.SLOT_HEAD.pack_into(buffer, start, 2, 5)
    buffer[start + 16 : start + 19] = b"tor"
    copy = bytes(buffer)
    assert record.load(copy, copy, record.PHASE) == (1, b"before")


def test_a_slot_that_changed_between_the_copies_is_not_taken():
    buffer = bytearray(record.SIZE)
    record.store(buffer, record.PHASE, 1, b"one")
    record.store(buffer, record.PHASE, 2, b"two")
    first = bytes(buffer)
    record.store(buffer, record.PHASE, 4, b"four")
    assert record.load(first, bytes(buffer), record.PHASE) == (1, b"one")


def write_step(buffer: bytearray, calls: int) -> None:
    record.STEP.pack_into(buffer, record.step_offset(calls), calls, 100 + calls, 1.5, 0.5, calls)


@UNTIMED
@given(st.integers(min_value=1, max_value=200))
def test_the_ring_holds_the_last_steps(calls):
    buffer = bytearray(record.SIZE)
    for number in range(1, calls + 1):
        write_step(buffer, number)
    copy = bytes(buffer)
    found = sorted(step.calls for step in record.load_steps(copy, copy))
    assert found == list(range(max(1, calls - record.STEPS + 1), calls + 1))


def test_a_half_written_step_is_left_out():
    buffer = bytearray(record.SIZE)
    write_step(buffer, 1)
    write_step(buffer, 2)
    struct.pack_into("@Q", buffer, record.step_offset(2), 34)
    copy = bytes(buffer)
    assert [step.calls for step in record.load_steps(copy, copy)] == [1]


@UNTIMED
@given(st.binary(min_size=1, max_size=300))
def test_any_bytes_can_be_looked_at(pattern):
    data = (pattern * record.SIZE)[: record.SIZE]
    for block in BLOCKS:
        record.load(data, data, block)
    for step in record.load_steps(data, data):
        assert math.isfinite(step.calls)


texts = st.text(max_size=300)


@UNTIMED
@given(texts, texts, texts, texts, st.lists(texts, max_size=40).map(tuple))
def test_any_identity_fits_and_comes_back(job, role, host, node, gpus):
    identity = RankIdentity(job=job, rank=7, role=role, host=host, node=node, gpus=gpus)
    data = encode(identity)
    assert len(data) <= record.IDENTITY.capacity
    back = decode(data)
    assert back.rank == 7
    assert job.startswith(back.job)


@UNTIMED
@given(st.text(alphabet=st.characters(), max_size=50), st.integers(min_value=0, max_value=60))
def test_clip_is_within_the_limit(text, limit):
    assert len(clip(text, limit).encode()) <= limit


def test_clip_replaces_lone_surrogates():
    assert clip("a\udcffb", 10) == "a?b"
