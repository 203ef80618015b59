"""Framing, checksums and scalars of TensorBoard event files, against files of real writers."""

from __future__ import annotations

import contextlib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tensorboard.compat.proto.event_pb2 import Event as EventProto
from tensorboard.compat.proto.summary_pb2 import Summary, SummaryMetadata
from tensorboard.compat.proto.tensor_pb2 import TensorProto
from tensorboard.util import tensor_util

from ray_sentinel.evidence.event_files.events import MalformedEvent, parse_event
from ray_sentinel.evidence.event_files.records import masked, scan
from tests.support.event_files import event, framed, write


def test_checksum_of_rfc_3720() -> None:
    vectors = {
        bytes(32): 0x8A9136AA,
        b"\xff" * 32: 0x62A8AB43,
        bytes(range(32)): 0x46DD794E,
        b"123456789": 0xE3069283,
    }
    for data, expected in vectors.items():
        rotated = ((expected >> 15) | (expected << 17)) & 0xFFFFFFFF
        assert masked(data) == (rotated + 0xA282EAD8) % 2**32


def test_file_of_a_real_writer(tmp_path: Path) -> None:
    path = write(tmp_path, range(20))
    found = scan(path.read_bytes())
    events = [parse_event(record) for record in found.records]
    assert found.consumed == path.stat().st_size
    assert not found.corrupt
    scalars = [(e.step, e.wall_time, s.tag, s.value) for e in events for s in e.scalars]
    assert scalars == [(step, 1000.0 + step, "loss", float(step)) for step in range(20)]


def test_every_cut_waits_and_then_goes_on(tmp_path: Path) -> None:
    data = write(tmp_path, range(3)).read_bytes()
    whole = scan(data).records
    for cut in range(len(data)):
        first = scan(data[:cut])
        assert not first.corrupt
        assert not first.bad
        assert first.records + scan(data[first.consumed :]).records == whole


def test_every_flipped_byte_loses_one_record_and_is_counted() -> None:
    whole = [event(step) for step in range(4)]
    data = b"".join(framed(record) for record in whole)
    last = len(data) - len(framed(whole[-1]))
    for place in range(last):
        broken = bytearray(data)
        broken[place] ^= 0x41
        found = scan(bytes(broken))
        lost = [record for record in whole if record not in found.records]
        assert len(lost) == 1
        assert found.corrupt == 1
        assert found.consumed == len(data)


def test_a_corrupt_end_is_not_given_up() -> None:
    data = framed(event(1)) + framed(event(2))
    found = scan(data[:-1] + b"?")
    assert found.bad
    assert not found.corrupt
    assert found.consumed == len(framed(event(1)))
    assert [parse_event(record).step for record in scan(data[found.consumed :]).records] == [2]


def test_zeros_where_data_will_come_are_waited_for() -> None:
    good = framed(event(1))
    found = scan(good + bytes(300))
    assert found.bad
    assert found.consumed == len(good)


@given(st.binary(max_size=400))
def test_any_bytes_can_be_scanned(data: bytes) -> None:
    found = scan(data)
    assert 0 <= found.consumed <= len(data)


@given(st.binary(max_size=200))
def test_any_bytes_can_be_parsed_or_are_malformed(data: bytes) -> None:
    for given_bytes in (data, event(3)[: len(data)] + data):
        with contextlib.suppress(MalformedEvent):
            assert parse_event(given_bytes).step < 1 << 63


@pytest.mark.parametrize("value", [0.0, -1.5, float("inf")])
def test_simple_value(value: float) -> None:
    assert parse_event(event(7, value=value)).scalars[0].value == value


def test_equal_shapes_are_told_apart_by_their_tags() -> None:
    for step in (1, 200, 70_000, 2**40):
        for tag in ("a/loss", "b/loss"):
            for value in (0.25, 0.625, 4.0):
                found = parse_event(event(step, tag, value))
                assert (found.step, found.scalars[0].tag) == (step, tag)
                assert found.scalars[0].value == value


def test_several_values_in_one_event() -> None:
    values = [Summary.Value(tag=f"t{n}", simple_value=n) for n in range(3)]
    for _ in range(2):
        proto = EventProto(wall_time=1.0, step=2, summary=Summary(value=values))
        found = parse_event(proto.SerializeToString())
        assert [(s.tag, s.value) for s in found.scalars] == [("t0", 0), ("t1", 1), ("t2", 2)]


@pytest.mark.parametrize("kind", ["float16", "float32", "float64", "int32", "int64", "uint8"])
@pytest.mark.parametrize("content", [False, True])
def test_tensor_scalars(kind: str, content: bool) -> None:
    import numpy

    array = numpy.array(3, dtype=kind)
    tensor = tensor_util.make_tensor_proto(array)
    if content:
        tensor = TensorProto(
            dtype=tensor.dtype, tensor_shape=tensor.tensor_shape, tensor_content=array.tobytes()
        )
    value = Summary.Value(tag="loss", tensor=tensor)
    proto = EventProto(wall_time=1.0, step=2, summary=Summary(value=[value]))
    assert parse_event(proto.SerializeToString()).scalars[0].value == 3.0


def test_bfloat16_and_negative_integers() -> None:
    for tensor, expected in (
        (TensorProto(dtype=14, half_val=[0x4049]), 3.140625),
        (TensorProto(dtype=14, tensor_content=b"\x49\x40"), 3.140625),
        (TensorProto(dtype=9, int64_val=[-5]), -5.0),
    ):
        value = Summary.Value(tag="x", tensor=tensor)
        proto = EventProto(summary=Summary(value=[value]))
        assert parse_event(proto.SerializeToString()).scalars[0].value == expected


def test_what_is_no_scalar_is_named() -> None:
    metadata = SummaryMetadata(plugin_data=SummaryMetadata.PluginData(plugin_name="text"))
    values = [
        Summary.Value(tag="v", tensor=tensor_util.make_tensor_proto([1.0, 2.0])),
        Summary.Value(tag="t", tensor=tensor_util.make_tensor_proto("words")),
        Summary.Value(tag="m", tensor=tensor_util.make_tensor_proto(1.0), metadata=metadata),
        Summary.Value(tag="e", tensor=tensor_util.make_tensor_proto([])),
    ]
    found = parse_event(EventProto(summary=Summary(value=values)).SerializeToString())
    assert not found.scalars
    assert found.others == ("v", "t", "m", "e")
