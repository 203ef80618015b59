"""Event files: ours beside tensorboard's EventFileLoader, and what a poll of a live file takes.

    python bench/event_files.py [--steps 20000] [--polls 500]

Both read the same file, written by tensorboard's own writer: two tags a step, one as
``simple_value`` and one as ``tensor``. They read it in turn, several times, and the best time of
each counts; their values are compared. Prints JSON.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import time
import timeit
from collections.abc import Callable
from pathlib import Path

from tensorboard.backend.event_processing.event_file_loader import EventFileLoader
from tensorboard.compat.proto.event_pb2 import Event
from tensorboard.compat.proto.summary_pb2 import Summary
from tensorboard.summary.writer.event_file_writer import EventFileWriter
from tensorboard.util import tensor_util

from ray_sentinel.api import Context
from ray_sentinel.evidence.event_files.events import parse_event
from ray_sentinel.evidence.event_files.records import scan
from ray_sentinel_plugins.tensorboard import TensorboardCollector

ROUNDS = 5


def add(writer: EventFileWriter, step: int) -> None:
    """One step: two events."""
    loss = Summary.Value(tag="learning/loss", simple_value=1 / (step + 1))
    seconds = Summary.Value(
        tag="perf/step_time_seconds", tensor=tensor_util.make_tensor_proto(0.5, dtype="float32")
    )
    for value in (loss, seconds):
        writer.add_event(Event(wall_time=1e9 + step, step=step, summary=Summary(value=[value])))


def best(work: Callable[[], object]) -> float:
    """Seconds of the fastest round."""
    return min(timeit.repeat(work, "gc.enable()", number=1, repeat=ROUNDS))


def ours(path: Path) -> list[tuple[int, str, float]]:
    """(Step, tag, value) of all scalars, by our reader."""
    events = map(parse_event, scan(path.read_bytes()).records)
    return [(event.step, s.tag, s.value) for event in events for s in event.scalars]


def theirs(path: Path) -> list[tuple[int, str, float]]:
    """The same by tensorboard's, which turns every value into a tensor."""
    return [
        (event.step, value.tag, value.tensor.float_val[0])
        for event in EventFileLoader(str(path)).Load()
        for value in event.summary.value
    ]


def messages(records: list[bytes]) -> None:
    """Parse them by protobuf's own runtime, and look at each scalar."""
    for record in records:
        event = Event.FromString(record)
        _ = event.wall_time, event.step
        for value in event.summary.value:
            _ = value.tag, value.metadata.plugin_data.plugin_name, value.WhichOneof("value")
            _ = value.tensor.float_val[0] if value.HasField("tensor") else value.simple_value


def poll(folder: Path, polls: int) -> dict[str, float]:
    """Milliseconds of a collection with one new step, and with nothing new."""
    writer = EventFileWriter(str(folder))
    options = TensorboardCollector.Options(folder=str(folder))
    collector = TensorboardCollector(Context(options=options))
    times: dict[str, list[float]] = {"new_step": [], "nothing_new": []}
    for step in range(polls):
        add(writer, step)
        writer.flush()
        for kind in ("new_step", "nothing_new"):
            begun = time.perf_counter()
            list(collector.collect())
            times[kind].append((time.perf_counter() - begun) * 1e3)
    return {
        f"{kind}_{name}_ms": round(value, 3)
        for kind, found in times.items()
        for name, value in (
            ("median", statistics.median(found)),
            ("p99", statistics.quantiles(found, n=100)[98]),
        )
    }


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=20_000)
    parser.add_argument("--polls", type=int, default=500)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name) / "file"
        writer = EventFileWriter(str(folder))
        for step in range(args.steps):
            add(writer, step)
        writer.close()
        path = next(folder.iterdir())
        events = 2 * args.steps
        assert ours(path) == theirs(path), "the two readers differ"
        records = scan(path.read_bytes()).records[1:]
        seconds, other = best(lambda: ours(path)), best(lambda: theirs(path))
        found = {
            "events": events,
            "ours_events_per_second": round(events / seconds),
            "parsing_events_per_second": round(events / best(lambda: [*map(parse_event, records)])),
            "protobuf_parsing_events_per_second": round(events / best(lambda: messages(records))),
            "event_file_loader_events_per_second": round(events / other),
            "times_as_fast": round(other / seconds, 1),
            **poll(Path(name) / "live", args.polls),
        }
    print(json.dumps(found, indent=2))


if __name__ == "__main__":
    main()
