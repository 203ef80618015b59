"""Binary, torn, endless, compressed, hostile and skewed logs."""

from __future__ import annotations

import bz2
import gzip
import lzma
import os
import sys
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from ray_sentinel.errors import InputError
from ray_sentinel.evidence.logs.errors.catalogue import Catalogue
from ray_sentinel.logs.catalogue import load_catalogue
from ray_sentinel.logs.salvage import Salvage, reason
from ray_sentinel.logs.triage import triage_path
from tests.support.parts import require_module

ZSTD = "compression.zstd" if sys.version_info >= (3, 14) else "backports.zstd"

STEPS = "".join(
    f"2025-01-02 10:{n // 60:02d}:{n % 60:02d} completed step: {n}, seconds: 1.0, loss: 2.0\n"
    for n in range(600)
)
FAILURE = (
    "[rank3]: Traceback (most recent call last):\n"
    '[rank3]:   File "/app/t.py", line 3, in f\n'
    "[rank3]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB\n"
)


@pytest.fixture(scope="module")
def catalogue() -> Catalogue:
    return load_catalogue()


@pytest.mark.parametrize(
    ("suffix", "pack"),
    [(".gz", gzip.compress), (".xz", lzma.compress), (".bz2", bz2.compress), ("", bytes)],
)
def test_compressed_and_rotated(
    suffix: str, pack: object, tmp_path: Path, catalogue: Catalogue
) -> None:
    assert callable(pack)
    (tmp_path / f"train.log.1{suffix}").write_bytes(pack((STEPS + FAILURE).encode()))
    answer = triage_path(tmp_path, catalogue, now=0.0)
    assert (answer.kind, answer.culprits[0].rank) == ("oom-gpu", 3)
    assert answer.evidence[0].line == 603


@pytest.mark.parametrize("hole", [False, True], ids=["written", "hole"])
def test_a_file_of_zero_bytes_is_no_log(hole: bool, tmp_path: Path, catalogue: Catalogue) -> None:
    """Such as a machine leaves that crashed before it had written what it had promised."""
    file = tmp_path / "train.log"
    with file.open("wb") as opened:
        if hole:
            opened.truncate(1 << 40)  # reading it would take hours
        else:
            opened.write(bytes(1 << 20))
    with pytest.raises(InputError, match=r"train\.log: holds only zero bytes"):
        triage_path(tmp_path, catalogue, now=0.0)
    (tmp_path / "other.log").write_text(STEPS)
    answer = triage_path(tmp_path, catalogue, now=0.0)
    assert any("zero bytes" in problem for problem in answer.problems)


def test_a_file_that_is_being_written_anew_is_no_hole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ray writes its ``debug_state.txt`` anew every ten seconds: it is empty for a moment."""
    file = tmp_path / "debug_state.txt"
    file.write_bytes(b"")
    seek = os.lseek

    def written_meanwhile(fd: int, at: int, whence: int) -> int:
        try:
            return seek(fd, at, whence)
        finally:
            file.write_text(STEPS)

    with file.open("rb", buffering=0) as opened:
        monkeypatch.setattr(os, "lseek", written_meanwhile)
        assert Salvage(opened).text_start() == 0
    assert file.read_text() == STEPS


def test_why_a_file_cannot_be_read_is_said_without_its_name() -> None:
    assert reason(PermissionError(13, "Permission denied", "/job/train.log")) == "Permission denied"
    assert reason(OSError("it unpacks to more than 5 MB")) == "it unpacks to more than 5 MB"
    assert reason(EOFError()) == "EOFError"


def test_a_cut_archive_is_used_as_far_as_it_goes(tmp_path: Path, catalogue: Catalogue) -> None:
    packed = gzip.compress((STEPS + FAILURE + "x" * 200_000).encode(), compresslevel=1)
    (tmp_path / "train.log.gz").write_bytes(packed[:-20])
    (tmp_path / "other.log").write_text(STEPS)
    answer = triage_path(tmp_path, catalogue, now=0.0)
    assert answer.kind in ("oom-gpu", "unknown-death")
    assert any("train.log.gz" in problem for problem in answer.problems)


@pytest.mark.parametrize(
    ("suffix", "pack", "lost"),
    [(".gz", gzip.compress, 8), (".gz", gzip.compress, 60_000), (".xz", lzma.compress, 20)],
)
def test_what_a_torn_file_still_holds_is_read(
    suffix: str, pack: Callable[[bytes], bytes], lost: int, tmp_path: Path, catalogue: Catalogue
) -> None:
    noise = "".join(f"{n} {n * 7919 % 100_003} {n * 104_729 % 1_000_003}\n" for n in range(60_000))
    text = STEPS + FAILURE + noise
    (tmp_path / f"train.log{suffix}").write_bytes(pack(text.encode())[:-lost])
    answer = triage_path(tmp_path, catalogue, now=0.0)
    assert answer.kind == "oom-gpu"
    assert answer.evidence[0].line == 603
    assert "only in part" in answer.problems[0]


@pytest.mark.parametrize(
    "content",
    [
        gzip.compress(STEPS.encode(), mtime=0)[:20],
        b"\x1f\x8b\x08",
        b"\x1f\x8b\x08garbage",
        b"\x1f\x8b\x08\0\0\0\0\0\0\0" + b"garbage" * 9,
    ],
)
def test_a_file_torn_at_its_front_is_named(
    content: bytes, tmp_path: Path, catalogue: Catalogue
) -> None:
    (tmp_path / "a.log.gz").write_bytes(content)
    with pytest.raises(InputError, match=r"a\.log\.gz: cannot be read .*copy it again"):
        triage_path(tmp_path, catalogue, now=0.0)
    (tmp_path / "b.log").write_text(STEPS + FAILURE)
    answer = triage_path(tmp_path, catalogue, now=0.0)
    assert answer.kind == "oom-gpu"
    assert "a.log.gz: cannot be read" in answer.problems[0]


@pytest.mark.parametrize("sparse", [True, False])
def test_a_log_that_was_truncated_under_its_writer(
    sparse: bool, tmp_path: Path, catalogue: Catalogue
) -> None:
    with (tmp_path / "train.log").open("wb") as file:
        if sparse:
            file.seek(40_000_123)
        else:
            file.write(bytes(300_123))
        file.write((STEPS + FAILURE).encode())
    answer = triage_path(tmp_path, catalogue, now=0.0)
    assert (answer.kind, answer.problems) == ("oom-gpu", ())
    assert answer.progress.first_step == 0


def test_zstd_is_read(tmp_path: Path, catalogue: Catalogue) -> None:
    pack = require_module(ZSTD).compress
    # Rotated files are often appended to frame by frame.
    (tmp_path / "train.log.zst").write_bytes(pack(STEPS.encode()) + pack(FAILURE.encode()))
    answer = triage_path(tmp_path, catalogue, now=0.0)
    assert answer.kind == "oom-gpu"
    assert answer.problems == ()
    plain = tmp_path / "plain.log"
    plain.write_text(STEPS + FAILURE)
    assert answer.evidence[0].line == triage_path(plain, catalogue, now=0.0).evidence[0].line


def test_broken_zstd_is_named(tmp_path: Path, catalogue: Catalogue) -> None:
    require_module(ZSTD)
    (tmp_path / "a.log.zst").write_bytes(b"\x28\xb5\x2f\xfd" + b"\xff" * 40)
    (tmp_path / "b.log").write_text(STEPS + FAILURE)
    answer = triage_path(tmp_path, catalogue, now=0.0)
    assert answer.kind == "oom-gpu"
    assert any("a.log.zst" in problem for problem in answer.problems)


def test_zstd_that_nothing_unpacks_is_named_with_the_remedy(
    tmp_path: Path, catalogue: Catalogue, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, ZSTD, None)
    (tmp_path / "a.log.zst").write_bytes(b"\x28\xb5\x2f\xfd\x00\x00\x00\x00\x00")
    (tmp_path / "b.log").write_text(STEPS + FAILURE)
    answer = triage_path(tmp_path, catalogue, now=0.0)
    assert answer.kind == "oom-gpu"
    assert any("zstd -d" in problem for problem in answer.problems)


def test_binary_files_are_left_out(tmp_path: Path, catalogue: Catalogue) -> None:
    (tmp_path / "core.log").write_bytes(bytes(range(256)) * 400)
    (tmp_path / "b.log").write_text(STEPS + FAILURE)
    answer = triage_path(tmp_path, catalogue, now=0.0)
    assert answer.kind == "oom-gpu"
    assert any("binary" in problem for problem in answer.problems)


def test_an_endless_line_costs_no_memory(tmp_path: Path, catalogue: Catalogue) -> None:
    path = tmp_path / "train.log"
    with path.open("wb") as file:
        file.write(STEPS.encode())
        for _ in range(60):
            file.write(b"z" * (1 << 20))
        file.write(b"\n" + FAILURE.encode())
    tracemalloc.start()
    answer = triage_path(path, catalogue, now=0.0)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert answer.kind == "oom-gpu"
    assert answer.evidence[0].line == 604
    assert peak < 60 << 20


def test_bars_redrawn_with_carriage_returns(tmp_path: Path, catalogue: Catalogue) -> None:
    bars = "".join(f"\r {n}%|###| {n}/100 [00:{n % 60:02d}<01:00, 1.00s/it]" for n in range(90))
    (tmp_path / "train.log").write_text(bars + "\n" + FAILURE)
    answer = triage_path(tmp_path, catalogue, now=0.0)
    assert (answer.kind, answer.progress.last_step, answer.progress.total_steps) == (
        "oom-gpu",
        89,
        100,
    )


def test_escapes_and_secrets_do_not_come_out(tmp_path: Path, catalogue: Catalogue) -> None:
    hostile = "RuntimeError: \x1b]0;owned\x07\x1b[31mboom hf_abcdefghijklmnopqrstuvwxyz\x1b[0m"
    (tmp_path / "train.log").write_text(STEPS + f"Traceback (most recent call last):\n{hostile}\n")
    answer = triage_path(tmp_path, catalogue, now=0.0)
    text = msgspec.json.encode(answer).decode()
    assert answer.kind == "python-exception"
    assert "\x1b" not in text
    assert "\\u001b" not in text
    assert "hf_abcdefghijklmnop" not in text


def test_a_node_in_another_time_zone(tmp_path: Path, catalogue: Catalogue) -> None:
    late = STEPS.replace(" 10:", " 17:")
    (tmp_path / "rank-0.log").write_text(STEPS)
    ends = "2025-01-02 17:09:59 ERROR\n"
    (tmp_path / "rank-3.log").write_text(late + ends + FAILURE.replace("[rank3]: ", ""))
    answer = triage_path(tmp_path, catalogue, now=0.0)
    assert (answer.kind, answer.culprits[0].rank) == ("oom-gpu", 3)
    assert answer.ended_at is not None
    assert answer.started_at is not None
    assert answer.ended_at - answer.started_at < 700


def test_nothing_to_read(tmp_path: Path, catalogue: Catalogue) -> None:
    with pytest.raises(InputError, match="no log files"):
        triage_path(tmp_path, catalogue)
    with pytest.raises(InputError, match="cannot be read"):
        triage_path(tmp_path / "missing", catalogue)


def test_a_file_that_ends_within_a_line(tmp_path: Path, catalogue: Catalogue) -> None:
    (tmp_path / "train.log").write_text(STEPS + "2025-01-02 10:10:00 completed st")
    answer = triage_path(tmp_path, catalogue, now=1.9e9)
    assert answer.kind == "unknown-death"
    assert answer.progress.last_step == 599


def test_steps_that_are_a_number_alone(tmp_path: Path, catalogue: Catalogue) -> None:
    steps = "".join(f"[rank0] INFO step {n}/1000\n" for n in range(600))
    (tmp_path / "train.log").write_text(steps + FAILURE)
    answer = triage_path(tmp_path, catalogue, now=0.0)
    assert (answer.kind, answer.phase) == ("oom-gpu", "train")
    assert (answer.progress.first_step, answer.progress.last_step) == (0, 599)
    assert answer.progress.total_steps == 1000


def test_empty_and_blank(tmp_path: Path, catalogue: Catalogue) -> None:
    (tmp_path / "train.log").write_text("\n\n   \n")
    assert triage_path(tmp_path, catalogue, now=0.0).kind == "unknown-death"


def test_a_running_job_in_another_time_zone_runs(tmp_path: Path, catalogue: Catalogue) -> None:
    now = 1_777_629_700.0  # 2026-05-01 10:01:40 UTC
    log = tmp_path / "train.log"
    lines = (f"2026-05-01 03:01:{s:02d} step {s} loss 2.0 time 1.0s\n" for s in range(1, 39))
    log.write_text("".join(lines))
    os.utime(log, (now - 2, now - 2))
    assert triage_path(log, catalogue, now=now).kind == "running"
    os.utime(log, (now - 7200, now - 7200))
    assert triage_path(log, catalogue, now=now).kind != "running"


@pytest.mark.parametrize(
    "line",
    [
        " iteration        7/  500000 | elapsed time per iteration (ms): 10.0.0 | lm loss: 9.0 |",
        "completed step: 7, seconds: 1.2.3, loss: 5.0",
        f"step: {'9' * 5000} loss: 2.0 time: 1s",
        f"world size: {'9' * 5000}",
        f"max_steps={'9' * 5000}",
        f"Training: 50%|x| 5/10G [00:01<00:01, {'9' * 400}.0it/s]",
        f"(Trainer pid={'9' * 5000}, ip=10.0.0.2) ValueError: x",
        "Training: 10%|x| 999999999999999999G/7 [00:01<00:01, 9.9.9it/s]",
    ],
)
def test_numbers_that_are_none(tmp_path: Path, catalogue: Catalogue, line: str) -> None:
    log = tmp_path / "train.log"
    log.write_text(f"{line}\n{STEPS}{line}\n{FAILURE}{line}\n")
    answer = triage_path(log, catalogue, now=0.0)
    assert answer.kind == "oom-gpu"
    assert msgspec.json.encode(answer)


def test_a_healthy_log_that_just_ends(tmp_path: Path, catalogue: Catalogue) -> None:
    log = tmp_path / "train.log"
    log.write_text(STEPS)
    answer = triage_path(log, catalogue, now=1_736_000_000.0)  # 2025-01-04 14:13:20 UTC
    assert (answer.kind, answer.outcome) == ("unknown-death", "unknown")
    assert answer.summary == (
        "Training continued to the end of the logs (step 599) without an error; "
        "what happened then is not in them. The newest line is 2 days old."
    )
    assert "ended" not in answer.next_steps[0]
    assert answer.playbook == ""


def test_a_log_that_ends_after_its_last_step_claims_less(
    tmp_path: Path, catalogue: Catalogue
) -> None:
    log = tmp_path / "train.log"
    log.write_text(STEPS + "2025-01-02 10:10:01 Saving checkpoint for step 600\n")
    answer = triage_path(log, catalogue, now=0.0)
    assert answer.summary == "The logs end after step 599 without giving a reason."


BAR = "  1%|#    | {}/8000 [00:05<9:00:00,  5.00s/it]\n"
BEGUN = "2026-03-01 10:01:00,123 INFO training begins\n"
ENDED = (
    "slurmstepd: error: *** JOB 7 ON n1 CANCELLED AT 2026-03-01T14:11:37 DUE TO TIME LIMIT ***\n"
)


@pytest.mark.parametrize(
    ("bars", "kind"),
    [
        ("".join(BAR.format(n) for n in range(1, 3000)), "cancelled"),
        ("".join(BAR.format(n).replace("5.00s", "?s") for n in range(1, 3000)), "cancelled"),
        ("".join(BAR.format(n) for n in range(1, 60)), "hang"),
    ],
    ids=["to the end", "unknown pace", "five minutes of four hours"],
)
def test_undated_bars_stand_still_only_by_their_own_pace(
    bars: str, kind: str, tmp_path: Path, catalogue: Catalogue
) -> None:
    log = tmp_path / "train.log"
    log.write_text(BEGUN + bars + ENDED)
    assert triage_path(log, catalogue, now=0.0).kind == kind
