"""Framing, checksums and scalars of TensorBoard event files, against files of real writers."""

from __future__ import annotations

import contextlib
import struct
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tensorboard.compat.proto.event_pb2 import Event as EventProto
from tensorboard.compat.proto.summary_pb2 import Summary, SummaryMetadata
from tensorboard.compat.proto.tensor_pb2 import TensorProto
from tensorboard.summary.writer.event_file_writer import EventFileWriter
from tensorboard.util import tensor_util

from ray_sentinel_plugins._event_files.crc32c import crc32c, crc32c_python, masked
from ray_sentinel_plugins._event_files.events import MalformedEvent, parse_event
from ray_sentinel_plugins._event_files.follow import FollowedFolder, event_folders, parse_name
from ray_sentinel_plugins._event_files.records import MAX_RECORD, scan


def framed(data: bytes) -> bytes:
    length = struct.pack("<Q", len(data))
    return b"".join(
        (length, struct.pack("<I", masked(length)), data, struct.pack("<I", masked(data)))
    )


def event(step: int, tag: str = "loss", value: float = 0.5, **fields: object) -> bytes:
    summary = Summary(value=[Summary.Value(tag=tag, simple_value=value)])
    proto = EventProto(wall_time=1000.0 + step, step=step, summary=summary, **fields)
    return bytes(proto.SerializeToString())


def write(folder: Path, steps: range, **options: object) -> Path:
    writer = EventFileWriter(str(folder), **options)
    for step in steps:
        summary = Summary(value=[Summary.Value(tag="loss", simple_value=float(step))])
        writer.add_event(EventProto(wall_time=1000.0 + step, step=step, summary=summary))
    writer.close()
    return max(folder.iterdir(), key=lambda path: path.stat().st_mtime_ns)


def test_checksum_of_rfc_3720() -> None:
    vectors = {
        bytes(32): 0x8A9136AA,
        b"\xff" * 32: 0x62A8AB43,
        bytes(range(32)): 0x46DD794E,
        b"123456789": 0xE3069283,
    }
    for data, expected in vectors.items():
        assert crc32c_python(data) == expected == crc32c(data)


@given(st.binary(max_size=200))
def test_both_checksums_agree(data: bytes) -> None:
    assert crc32c_python(data) == crc32c(data)


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


def test_names_of_files() -> None:
    found = parse_name("events.out.tfevents.1700000000.node.a.b.77.3.v2")
    assert found is not None
    assert (found.time, found.host, found.pid, found.number) == (1700000000, "node.a.b", "77", 3)
    old = parse_name("events.out.tfevents.1700000000.node1")
    assert old is not None
    assert (old.host, old.pid) == ("node1", "")
    assert parse_name("checkpoint.pt") is None


def steps(folder: FollowedFolder) -> list[int]:
    folder.look()
    found = []
    for file in folder.files.values():
        while True:
            found += [e.step for e in file.read() if e.scalars]
            if file.caught_up:
                break
    return found


def test_follows_as_a_file_grows_and_rotates(tmp_path: Path) -> None:
    first = tmp_path / "events.out.tfevents.100.host.7.0"
    folder = FollowedFolder(tmp_path)
    assert steps(folder) == []
    first.write_bytes(framed(event(1)) + framed(event(2))[:20])
    assert steps(folder) == [1]
    assert steps(folder) == []
    with first.open("ab") as file:
        file.write(framed(event(2))[20:] + framed(event(3)))
    assert steps(folder) == [2, 3]
    (tmp_path / "events.out.tfevents.200.host.7.1").write_bytes(framed(event(4)))
    (tmp_path / "events.out.tfevents.300.host.9.0").write_bytes(framed(event(3)))
    assert steps(folder) == [4, 3]
    assert [file.attempt for file in folder.files.values()] == [0, 0, 1]


def test_records_larger_than_a_chunk(tmp_path: Path) -> None:
    large = event(5, file_version=None) + b"\xfa\x01" + b"\x80\x80\x80\x01" + bytes(1 << 21)
    (tmp_path / "events.out.tfevents.1.h").write_bytes(
        framed(event(1)) + framed(large) + framed(event(6)) + framed(large)[:-1]
    )
    folder = FollowedFolder(tmp_path)
    assert steps(folder) == [1, 5, 6]
    assert folder.caught_up
    assert folder.corrupt == 0


def test_a_corrupt_stretch_longer_than_a_chunk_is_counted_once(tmp_path: Path) -> None:
    (tmp_path / "events.out.tfevents.1.h").write_bytes(
        framed(event(1)) + b"\xaa" * (5 << 20) + framed(event(2))
    )
    folder = FollowedFolder(tmp_path)
    assert steps(folder) == [1, 2]
    assert folder.corrupt == 1


def test_an_oversize_record_is_passed_over(tmp_path: Path) -> None:
    path = tmp_path / "events.out.tfevents.1.h"
    length = struct.pack("<Q", MAX_RECORD + 1)
    with path.open("wb") as file:
        file.write(framed(event(1)) + length + struct.pack("<I", masked(length)))
        file.seek(MAX_RECORD + 1 + 4, 1)
        file.write(framed(event(2)))
    folder = FollowedFolder(tmp_path)
    assert steps(folder) == [1, 2]
    assert next(iter(folder.files.values())).oversize == 1


def test_folders_below(tmp_path: Path) -> None:
    for name in ("a", "b/c"):
        (tmp_path / name).mkdir(parents=True)
        (tmp_path / name / "events.out.tfevents.1.h").touch()
    (tmp_path / "other").mkdir()
    assert event_folders(tmp_path) == [tmp_path / "a", tmp_path / "b" / "c"]


@pytest.mark.parametrize(
    ("names", "attempts"),
    [
        (["100.a.7.0", "160.a.7.1", "220.a.8.0"], [0, 0, 1]),
        # The same pid again, as in a container that was started again.
        (["100.a.7.0", "160.a.7.1", "220.a.7.0", "280.a.7.1"], [0, 0, 1, 1]),
        (["100.a.7.0", "100.a.7.1", "100.b.7.0"], [0, 0, 1]),
        (["100.a", "200.a"], [0, 1]),
    ],
)
def test_attempts_are_told_apart(tmp_path: Path, names: list[str], attempts: list[int]) -> None:
    for name in names:
        (tmp_path / f"events.out.tfevents.{name}").write_bytes(b"")
    folder = FollowedFolder(tmp_path)
    folder.look()
    found = {name: file.attempt for name, file in folder.files.items()}
    assert [found[f"events.out.tfevents.{name}"] for name in names] == attempts
