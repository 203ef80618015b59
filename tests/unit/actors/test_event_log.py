"""The event log on disk: segments, torn lines, bounds, recovery."""

from __future__ import annotations

from pathlib import Path

import pytest

from ray_sentinel.actors.coordinator.event_log import log as event_log
from ray_sentinel.actors.coordinator.event_log.log import EventLog
from ray_sentinel.engine.events import DumpAsked, Tick
from ray_sentinel.errors import InputError


def ticks(log: EventLog, start: int, stop: int) -> None:
    for number in range(start, stop):
        log.append(Tick(time=float(number)), ())


def test_what_is_written_is_read(tmp_path: Path) -> None:
    log = EventLog(tmp_path)
    log.append(Tick(time=1.0))
    log.append(DumpAsked(time=2.0, job="j"), ())
    log.close()
    header, events = event_log.read(tmp_path)
    assert header.started_at == 1.0
    assert events == [Tick(time=1.0), DumpAsked(time=2.0, job="j")]


def test_full_segments_are_compressed_and_the_oldest_go(tmp_path: Path) -> None:
    log = EventLog(tmp_path, max_bytes=900, segment_bytes=1000)
    ticks(log, 0, 400)
    log.close()
    found = event_log.segments(tmp_path)
    assert [path.suffix for path in found[:-1]] == [".gz"] * (len(found) - 1)
    assert found[-1].suffix == ".jsonl"
    assert found[0].name != "000001.jsonl.gz", "the first segment is gone"
    times = [event.time for event in event_log.read(tmp_path)[1]]
    assert times == [float(n) for n in range(int(times[0]), 400)], "without a gap to the end"


def test_a_torn_line_is_left_out(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    ticks(EventLog(tmp_path), 0, 3)
    (segment,) = event_log.segments(tmp_path)
    segment.write_bytes(segment.read_bytes()[:-5])
    assert [event.time for event in event_log.read(tmp_path)[1]] == [0.0, 1.0]
    assert "left out" in caplog.text


def test_a_later_writer_goes_on_in_a_segment_of_its_own(tmp_path: Path) -> None:
    ticks(EventLog(tmp_path), 0, 2)
    ticks(EventLog(tmp_path), 2, 4)
    assert len(event_log.segments(tmp_path)) == 2
    assert [event.time for event in event_log.read(tmp_path)[1]] == [0.0, 1.0, 2.0, 3.0]


@pytest.mark.parametrize("content", [b"", b"hello\n", b"\x1f\x8b garbage", b"{}\n[]\n"])
def test_what_is_no_log_is_named(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / ("000001.jsonl.gz" if content[:1] == b"\x1f" else "000001.jsonl")
    path.write_bytes(content)
    if content == b"{}\n[]\n":
        assert event_log.read(tmp_path)[1] == []  # a header of defaults, and a line of no event
        return
    with pytest.raises(InputError, match="000001"):
        event_log.read(tmp_path)


def test_a_newer_log_is_refused(tmp_path: Path) -> None:
    (tmp_path / "000001.jsonl").write_bytes(b'{"log": "ray_sentinel events", "version": 99}\n')
    with pytest.raises(InputError, match="newer"):
        event_log.read(tmp_path)


def test_an_empty_folder_is_no_log(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no event log"):
        event_log.read(tmp_path)


def packed(folder: Path) -> bytes:
    """A segment that was compressed."""
    ticks(EventLog(folder, segment_bytes=500), 0, 40)
    (first, *_) = event_log.segments(folder)
    assert first.suffix == ".gz"
    return first.read_bytes()


def test_a_damaged_segment_is_named(tmp_path: Path) -> None:
    data = bytearray(packed(tmp_path / "log"))
    data[20] ^= 0xFF
    (tmp_path / "000001.jsonl.gz").write_bytes(bytes(data))
    with pytest.raises(InputError, match="000001"):
        event_log.read_segment(tmp_path / "000001.jsonl.gz")


def test_bytes_that_are_no_text_cost_their_line(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    log = EventLog(tmp_path)
    log.append(DumpAsked(time=1.0, job="spoilt"), ())
    log.append(Tick(time=2.0))
    (segment,) = event_log.segments(tmp_path)
    segment.write_bytes(segment.read_bytes().replace(b"spoilt", b"\xff\xfe\xfd!!!"))
    assert [event.time for event in event_log.read(tmp_path)[1]] == [2.0]
    assert "left out" in caplog.text


def test_a_header_that_is_no_text_is_named(tmp_path: Path) -> None:
    (tmp_path / "000001.jsonl").write_bytes(b'{"log": "\xff\xfe"}\n')
    with pytest.raises(InputError, match="000001"):
        event_log.read(tmp_path)
