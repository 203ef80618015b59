"""Event files for tests: framed records, and files by TensorBoard's own writer."""

from __future__ import annotations

import struct
from pathlib import Path

from tensorboard.compat.proto.event_pb2 import Event as EventProto
from tensorboard.compat.proto.summary_pb2 import Summary
from tensorboard.summary.writer.event_file_writer import EventFileWriter

from ray_sentinel.evidence.event_files.records import masked


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
