"""Evidence beside the event log: bounded, complete or not there, and told where it is missing."""

from __future__ import annotations

import os
from pathlib import Path

import msgspec
import pytest

from ray_sentinel.actors.coordinator.event_log import log as event_log
from ray_sentinel.actors.coordinator.event_log.evidence_files import (
    EVIDENCE_SHARE,
    LARGE,
    SMALL,
    EvidenceFiles,
    detached,
    is_evidence_file,
    kept,
    read_evidence,
    too_large,
)
from ray_sentinel.actors.coordinator.event_log.log import EventLog, is_log_file, read, segments
from ray_sentinel.actors.coordinator.event_log.writer import LogWriter
from ray_sentinel.clock import FakeClock
from ray_sentinel.engine.events import KeptEvidence, RecorderExplained, Tick
from ray_sentinel.errors import InputError
from ray_sentinel.masking import mask_record


def large(number: int, size: int = SMALL + 1) -> KeptEvidence:
    return kept(bytes([number]) * size)


def explained(evidence: KeptEvidence, time: float = 1.0) -> RecorderExplained:
    return RecorderExplained(time=time, incident="0001", facts=None, judged_from=evidence)


def files(folder: Path) -> list[str]:
    return sorted(name for name in os.listdir(folder) if is_evidence_file(name))


def named_at(folder: Path, evidence: KeptEvidence, seconds: float) -> None:
    os.utime(folder / evidence.file, (seconds, seconds))


def test_what_is_small_is_in_the_event() -> None:
    evidence = kept(b"x" * SMALL)
    assert not evidence.file
    event = explained(evidence)
    assert detached(event) == (event, None)
    assert detached(Tick(time=1.0)) == (Tick(time=1.0), None)


def test_what_is_larger_goes_into_a_file_whose_name_the_event_has(tmp_path: Path) -> None:
    evidence = large(1)
    line, file = detached(explained(evidence))
    assert file == evidence
    assert isinstance(line, RecorderExplained)
    assert line.judged_from == KeptEvidence(file=evidence.file)
    EvidenceFiles(tmp_path, 1 << 20).keep(evidence)
    assert read_evidence(tmp_path, line.judged_from) == evidence.data
    assert (tmp_path / evidence.file).stat().st_mode & 0o777 == 0o600


def test_what_is_too_large_is_not_kept_and_says_so(tmp_path: Path) -> None:
    evidence = kept(b"x" * (LARGE + 1))
    assert not evidence.data
    assert not evidence.file
    with pytest.raises(InputError, match="17 MB were too large"):
        read_evidence(tmp_path, evidence)
    assert too_large(LARGE + 1) == evidence


def test_masking_leaves_it_alone() -> None:
    for number in range(200):
        event = explained(large(number))
        assert mask_record(event) == event


def test_evidence_that_has_not_changed_takes_no_second_file(tmp_path: Path) -> None:
    held = EvidenceFiles(tmp_path, 1 << 20)
    for evidence in (large(1), large(2), large(1)):
        held.keep(evidence)
    assert len(files(tmp_path)) == 2
    assert held.size == 2 * (SMALL + 1)


def test_all_files_are_bounded_and_what_was_named_longest_ago_goes_first(tmp_path: Path) -> None:
    held = EvidenceFiles(tmp_path, 3 * (SMALL + 1))
    for number in (1, 2, 3):
        held.keep(large(number))
        named_at(tmp_path, large(number), number)
    held.keep(large(1))
    held.keep(large(4))
    assert files(tmp_path) == sorted(large(number).file for number in (1, 3, 4))
    held.keep(large(5, 4 * SMALL))
    assert large(5, 4 * SMALL).file not in files(tmp_path)
    assert len(files(tmp_path)) == 3


def test_a_half_written_file_counts_for_nothing_and_goes(tmp_path: Path) -> None:
    partial = tmp_path / (large(1).file + ".part")
    partial.write_bytes(b"half")
    with pytest.raises(InputError, match="is not there"):
        read_evidence(tmp_path, large(1))
    EvidenceFiles(tmp_path, 1 << 20).keep(large(2))
    assert files(tmp_path) == [large(2).file]


@pytest.mark.parametrize("data", [b"", b"\x01" * SMALL, b"\x02" * (SMALL + 1)])
def test_a_damaged_file_is_not_read_but_written_anew(tmp_path: Path, data: bytes) -> None:
    evidence = large(1)
    (tmp_path / evidence.file).write_bytes(data)
    with pytest.raises(InputError, match=r"damaged|not there"):
        read_evidence(tmp_path, evidence)
    if len(data) != len(evidence.data):
        EvidenceFiles(tmp_path, 1 << 20).keep(evidence)
        assert read_evidence(tmp_path, evidence) == evidence.data


@pytest.mark.parametrize("name", ["../x.evidence", "/etc/passwd", "0" * 32 + ".evidence.part"])
def test_no_other_file_is_read(tmp_path: Path, name: str) -> None:
    with pytest.raises(InputError, match="name"):
        read_evidence(tmp_path, KeptEvidence(file=name))


def test_the_log_and_its_evidence_share_one_bound(tmp_path: Path) -> None:
    most = 16 * SMALL
    log = EventLog(tmp_path, max_bytes=most, segment_bytes=SMALL)
    for number in range(60):
        event, evidence = detached(explained(large(number), number))
        if evidence is not None and number % 2:
            log.keep(evidence)
        log.append(event, b"state" if log.begins else b"")
        log.append(explained(kept(os.urandom(SMALL // 2)), number))
        total = sum(path.stat().st_size for path in tmp_path.iterdir())
        assert total <= most + 2 * SMALL  # the segment that is being written
    log.close()
    held = sum((tmp_path / name).stat().st_size for name in files(tmp_path))
    assert 0 < held <= most // EVIDENCE_SHARE
    assert len(segments(tmp_path)) > 1
    assert all(is_log_file(name) for name in os.listdir(tmp_path))


def test_a_log_that_may_take_less_than_before_gives_up_evidence_not_segments(
    tmp_path: Path,
) -> None:
    before = EventLog(tmp_path, max_bytes=64 * SMALL)
    for number in range(12):
        before.keep(large(number))
        before.begin(number, b"state")
    before.close()
    (tmp_path / (large(20).file + ".part")).write_bytes(bytes(12 * SMALL))
    log = EventLog(tmp_path, max_bytes=8 * SMALL)
    log.begin(12, b"state")
    log.close()
    assert len(segments(tmp_path)) == 13
    assert len(files(tmp_path)) == 1


def written(folder: Path, events: list[RecorderExplained], **bounds: int) -> list[KeptEvidence]:
    """What a replay finds in the lines."""
    writer = LogWriter(folder, 1 << 30, FakeClock(), **bounds)
    for event in events:
        writer.put(event)
    writer.close()
    found = [event.judged_from for event in read(folder)[1] if isinstance(event, RecorderExplained)]
    assert writer.missing == 0
    return [evidence for evidence in found if evidence is not None]


def test_the_writer_writes_the_file_and_the_line_names_it(tmp_path: Path) -> None:
    (found,) = written(tmp_path, [explained(large(7))])
    assert not found.data
    assert read_evidence(tmp_path, found) == large(7).data


def test_where_much_waits_for_the_disk_the_verdict_goes_before_its_evidence(tmp_path: Path) -> None:
    (found,) = written(tmp_path, [explained(large(7))], waiting_bytes=SMALL)
    assert found.file == large(7).file
    assert files(tmp_path) == []


def test_a_disk_that_takes_no_evidence_keeps_the_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(self: EvidenceFiles, evidence: KeptEvidence) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(EvidenceFiles, "keep", full)
    found = written(tmp_path, [explained(large(7)), explained(large(8), 2.0)])
    assert [one.file for one in found] == [large(7).file, large(8).file]


def test_an_older_version_reads_the_line(tmp_path: Path) -> None:
    """Of before evidence was kept: to it the field is unknown."""

    class Older(msgspec.Struct, tag_field="event", tag="recorder"):
        time: float
        incident: str

    line = event_log.encoded(detached(explained(large(1)))[0])
    assert msgspec.json.decode(line, type=Older) == Older(1.0, "0001")
