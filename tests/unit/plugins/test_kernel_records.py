"""Records of the kernel log in each form in which they come."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from ray_sentinel_plugins._kernel_log import follow
from ray_sentinel_plugins._kernel_log.follow import KmsgFollower
from ray_sentinel_plugins._kernel_log.records import KernelRecord, parse_kmsg, parse_log

XID = "NVRM: Xid (PCI:0000:cb:00): 13, Graphics"
AUGUST_2024 = 1725016282.0  # 2024-08-30 11:11:22 UTC


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        (f"4,1234,567890123,-;{XID}", {"monotonic": 567.890123, "level": 4, "sequence": 1234}),
        (f"12,5,1000000,-,caller=T42;{XID}", {"monotonic": 1.0, "level": 4, "sequence": 5}),
        (f"[  567.890123] {XID}", {"monotonic": 567.890123}),
        (f"[    0.000000][    T0] {XID}", {"monotonic": 0.0}),
        (f"[  567.890123 <    0.000012>] {XID}", {"monotonic": 567.890123}),
        (f"<4>[  567.890123] {XID}", {"monotonic": 567.890123, "level": 4}),
        (f"kern  :warn  : [  567.890123] {XID}", {"monotonic": 567.890123, "level": 4}),
        (f"[Fri Aug 30 11:11:22 2024] {XID}", {"wall": AUGUST_2024}),
        (f"[Fri Aug  2 11:11:22 2024] {XID}", {"wall": AUGUST_2024 - 28 * 86400}),
        (f"2024-08-30T11:11:22,250000+00:00 {XID}", {"wall": AUGUST_2024 + 0.25}),
        (f"2024-08-30T13:11:22.250+02:00 node7 kernel: {XID}", {"wall": AUGUST_2024 + 0.25}),
        (f"2024-08-30T13:11:22+0200 node7 kernel: {XID}", {"wall": AUGUST_2024}),
        (
            f"2024-08-30 11:11:22 node7 kernel: [ 567.5] {XID}",
            {"wall": AUGUST_2024, "monotonic": 567.5},
        ),
        (f"Aug 30 11:11:22 node7 kernel: {XID}", {"wall": AUGUST_2024}),
        (
            f"Aug 30 11:11:22 node7 kernel: [  567.5] {XID}",
            {"wall": AUGUST_2024, "monotonic": 567.5},
        ),
        (f"[ 1843.308145] node7 kernel: {XID}", {"monotonic": 1843.308145}),
        (f"[Aug30 11:11] {XID}", {"wall": AUGUST_2024 - 22}),
        (XID, {}),
    ],
)
def test_forms(line: str, expected: dict[str, float]) -> None:
    (record,) = parse_log(line + "\n", now=AUGUST_2024 + 86400 * 30)
    assert record.text == XID
    assert (record.monotonic, record.wall) == (expected.get("monotonic"), expected.get("wall"))
    assert record.level == expected.get("level")
    assert record.sequence == expected.get("sequence", 0)


@pytest.mark.parametrize(
    "line",
    [
        f"Aug 30 11:11:22 node7 systemd[1]: {XID}",
        f"Aug 30 11:11:22 node7 monitor: {XID}",
        f"2024-08-30T11:11:22+00:00 node7 python3[77]: {XID}",
        f"[ 12.5] node7 systemd[1]: {XID}",
    ],
)
def test_other_programs_are_left_out(line: str) -> None:
    assert parse_log(line, now=AUGUST_2024) == []


def test_a_year_that_syslog_leaves_out_is_the_latest_possible() -> None:
    (record,) = parse_log("Dec 31 23:00:00 n kernel: x", now=1735689600.0)  # 2025-01-01
    assert record.wall == 1735686000.0


def test_differences_add_up() -> None:
    records = parse_log("[Aug30 11:11] a\n[  +0.500000] b\n[  +1.000000] c\n", now=AUGUST_2024)
    assert [record.wall for record in records] == [
        AUGUST_2024 - 22,
        AUGUST_2024 - 21.5,
        AUGUST_2024 - 20.5,
    ]


def test_messages_of_several_lines() -> None:
    text = "[ 1.0] NVRM: The NVIDIA GPU\n               NVRM: fell\n[ 2.0] next\n"
    assert [record.text for record in parse_log(text)] == [
        "NVRM: The NVIDIA GPU\nNVRM: fell",
        "next",
    ]
    kmsg = "3,1,1000000,-;one\\x0atwo\n SUBSYSTEM=pci\n DEVICE=+pci:0000:3b:00.0\n3,2,2000000,-;x\n"
    assert [record.text for record in parse_log(kmsg)] == ["one\ntwo", "x"]


def test_garbage_is_survived() -> None:
    text = os.urandom(1 << 16).decode("latin-1")
    assert all(isinstance(record, KernelRecord) for record in parse_log(text))
    assert parse_kmsg("no record") is None
    assert parse_kmsg("9,,,;x") is None


# Following /dev/kmsg


@pytest.fixture
def device(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[..., KmsgFollower]:
    """A follower whose reads give what a test says, as the device would."""

    def make(script: list[bytes | int], start: int | None = None) -> KmsgFollower:
        path = tmp_path / "kmsg"
        path.touch()
        follower = KmsgFollower(path, start)

        def read(handle: int, size: int) -> bytes:
            answer: bytes | int = script.pop(0) if script else errno.EAGAIN
            if isinstance(answer, int):
                raise OSError(answer, os.strerror(answer))
            return answer

        monkeypatch.setattr(follow.os, "read", read)
        return follower

    return make


def record(sequence: int) -> bytes:
    return f"4,{sequence},{sequence}000000,-;line {sequence}\n".encode()


def test_the_ring_once_then_what_is_new(device: Callable[..., KmsgFollower]) -> None:
    script: list[bytes | int] = [record(5), record(6)]
    follower = device(script)
    assert [r.sequence for r in follower.read().records] == [5, 6]
    assert follower.read().records == []
    script.append(record(7))
    batch = follower.read()
    assert [r.sequence for r in batch.records] == [7]
    assert batch.lost == 0


def test_overwritten_records_are_counted_once(device: Callable[..., KmsgFollower]) -> None:
    script: list[bytes | int] = [record(5)]
    follower = device(script)
    follower.read()
    script += [errno.EPIPE, record(100), record(101)]
    batch = follower.read()
    assert [r.sequence for r in batch.records] == [100, 101]
    assert batch.lost == 94
    assert follower.read().lost == 0


def test_going_on_where_an_earlier_process_stopped(device: Callable[..., KmsgFollower]) -> None:
    follower = device([record(5), record(6), record(7)], start=7)
    assert [r.sequence for r in follower.read().records] == [7]


def test_a_device_that_fails_is_an_error(device: Callable[..., KmsgFollower]) -> None:
    with pytest.raises(OSError, match="Input/output"):
        device([errno.EIO]).read()
