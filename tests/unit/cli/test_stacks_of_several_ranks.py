"""``ray-sentinel explain stacks``: several ranks in one file, equal pids, several tools."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from ray_sentinel.cli.main import main

WAITS = "all_reduce (torch/distributed/distributed_c10d.py:2806)"
LOADS = "__next__ (torch/utils/data/dataloader.py:701)"
RANKS = range(4)
ODD = 2


def dump(rank: int, pid: int | None = None, command: str = "") -> str:
    """py-spy's output of a rank: one waits for data, the others for it."""
    pid = 4000 + rank if pid is None else pid
    return (
        f"Process {pid}: python train.py{command}\nPython v3.11.7 (/usr/bin/python3.11)\n\n"
        f'Thread {pid} (idle): "MainThread"\n    {LOADS if rank == ODD else WAITS}\n'
        "    step (train.py:12)\n    <module> (train.py:30)\n"
    )


def traceback(rank: int) -> str:
    """faulthandler's output, which names no pid."""
    function, place = (LOADS if rank == ODD else WAITS).split(" (")
    file, line = place.rstrip(")").split(":")
    return (
        "Current thread 0x00007f1c (most recent call first):\n"
        f'  File "{file}", line {line} in {function}\n  File "train.py", line 30 in <module>\n'
    )


def kernel_stack(pid: int) -> str:
    return f"$ cat /proc/{pid}/stack\n[<0>] futex_wait+0x105/0x240\n[<0>] do_futex+0x143/0x500\n"


def behind(prefix: str, text: str) -> str:
    return "".join(f"{prefix}{line}\n" for line in text.splitlines())


def explained(capsys: pytest.CaptureFixture[str], *paths: Path) -> dict[str, Any]:
    main(["explain", "stacks", *map(str, paths), "--json"])
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


def culprits(found: dict[str, Any]) -> list[tuple[int | None, str, int | None]]:
    return [(who["rank"], who["host"], who["pid"]) for who in found["culprits"]]


@pytest.mark.parametrize(
    ("prefix", "expected"),
    [
        ("[rank{}]: ", (2, "", 4002)),
        # What srun, mpirun and torchrun count need not be the rank.
        ("{}: ", (None, "", 4002)),
        ("[1,{}]<stdout>:", (None, "", 4002)),
        ("[default{}]:", (None, "", 4002)),
        ("node0{}: ", (None, "node02", 4002)),
    ],
)
def test_ranks_in_one_log(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    prefix: str,
    expected: tuple[int | None, str, int | None],
) -> None:
    log = tmp_path / "all.log"
    log.write_text("".join(behind(prefix.format(rank), dump(rank)) for rank in RANKS))
    found = explained(capsys, log)
    assert (culprits(found), len(found["processes"])) == ([expected], 4)


@pytest.mark.parametrize(
    ("prefix", "expected"),
    [
        ("[rank{}]: ", (2, "rank 2", None)),
        ("{}: ", (None, "task 2", None)),
        ("(W pid=70{}, ip=10.0.0.1) ", (None, "10.0.0.1", 702)),
    ],
)
def test_tracebacks_of_ranks_in_one_log(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    prefix: str,
    expected: tuple[int | None, str, int | None],
) -> None:
    log = tmp_path / "all.log"
    log.write_text("".join(behind(prefix.format(rank), traceback(rank)) for rank in RANKS))
    assert culprits(explained(capsys, log)) == [expected]


@pytest.mark.parametrize(
    "head",
    [
        "=== rank {} ===",
        "# rank: {}",
        "--- rank {} of 4 ---",
        "Rank {} on node07, pid 40:",
        "rank {} (node01)",
        "[rank {} on gpu 3]",
    ],
)
def test_files_joined_by_hand(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], head: str
) -> None:
    joined = tmp_path / "all.txt"
    joined.write_text("".join(f"{head.format(rank)}\n{dump(rank)}" for rank in RANKS))
    assert culprits(explained(capsys, joined)) == [(2, "", 4002)]


@pytest.mark.parametrize(
    "line",
    [
        "rank {} at step 7, loss 2.31",
        "Rank {} of 8 has joined",
        "rank {} on gpu 3 waits for rank 5",
        "rank {} of 8",
        "rank {} host memory 81 %",
    ],
)
def test_a_line_of_a_log_is_no_head(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], line: str
) -> None:
    joined = tmp_path / "all.txt"
    joined.write_text("".join(f"{line.format(3 - rank)}\n{dump(rank)}" for rank in RANKS))
    assert culprits(explained(capsys, joined)) == [(None, "", 4002)]


@pytest.mark.parametrize("name", ["all.txt", "rank0.txt"])
def test_each_command_line_names_its_own_rank(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    joined = tmp_path / name
    joined.write_text("".join(dump(rank, command=f" --rank {rank}") for rank in RANKS))
    assert culprits(explained(capsys, joined)) == [(2, "", 4002)]


def test_a_rank_at_the_head_is_not_that_of_all_below(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    joined = tmp_path / "all.txt"
    joined.write_text("# rank: 0\n" + "".join(map(dump, RANKS)))
    assert culprits(explained(capsys, joined)) == [(None, "", 4002)]


@pytest.mark.parametrize("name", ["rank{}/pyspy.txt", "rank_{}.txt", "pyspy_rank_{}.txt"])
def test_ranks_in_containers_have_the_same_pid(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    for rank in RANKS:
        path = tmp_path / name.format(rank)
        path.parent.mkdir(exist_ok=True)
        path.write_text(dump(rank, pid=72))
    found = explained(capsys, tmp_path)
    assert [who["rank"] for who in found["culprits"]] == [2]
    assert (found["rounds"], len(found["processes"])) == (1, 4)


def test_a_head_behind_another_prefix(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for rank in RANKS:
        log = behind("2025-10-29T11:25:58.1Z stdout F ", f"# rank: {rank}\n{dump(rank)}")
        (tmp_path / f"{'abcd'[rank]}.log").write_text(log)
    assert culprits(explained(capsys, tmp_path)) == [(2, "", 4002)]


def test_one_process_seen_again_stays_one(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for look in ("look1", "look2"):
        for rank in RANKS:
            path = tmp_path / look / f"rank{rank}.txt"
            path.parent.mkdir(exist_ok=True)
            path.write_text(dump(rank, pid=72))
    found = explained(capsys, tmp_path)
    assert (found["rounds"], len(found["processes"])) == (2, 4)
    assert [who["rank"] for who in found["culprits"]] == [2]


def test_rank_0_is_named_like_the_others(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for rank in RANKS:
        (tmp_path / f"pyspy_rank_{rank}.txt").write_text(dump(rank + ODD))
    found = explained(capsys, tmp_path)
    assert ([who["rank"] for who in found["culprits"]], found["skipped"]) == ([0], [])


def test_the_logs_of_torchrun(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for rank in RANKS:
        path = tmp_path / "job_x7" / "attempt_0" / str(rank) / "stderr.log"
        path.parent.mkdir(parents=True)
        path.write_text(traceback(rank))
    assert culprits(explained(capsys, tmp_path)) == [(None, "job_x7 local rank 2", None)]


def test_py_spy_and_the_kernel_in_one_file(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for rank in RANKS:
        path = tmp_path / f"rank{rank}.txt"
        path.write_text(dump(rank) + kernel_stack(4000 + rank))
    found = explained(capsys, tmp_path)
    assert ([who["rank"] for who in found["culprits"]], len(found["processes"])) == ([2], 4)


def test_kernel_stacks_behind_the_dumps_of_several_make_no_process_more(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    joined = tmp_path / "all.txt"
    joined.write_text("".join(dump(rank) + kernel_stack(4000 + rank) for rank in RANKS))
    found = explained(capsys, joined)
    assert (culprits(found), len(found["processes"])) == ([(None, "", 4002)], 4)


def test_stacks_with_gaps_are_not_read(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "whole.txt").write_text(dump(0))
    log = behind("(W pid=7) ", dump(1)).replace(WAITS, f"{WAITS} [repeated 3x across cluster]")
    (tmp_path / "ray.log").write_text(log)
    (skipped,) = explained(capsys, tmp_path)["skipped"]
    assert "RAY_DEDUP_LOGS=0" in skipped


@pytest.mark.parametrize("encoding", ["utf-16-le", "utf-16-be"])
def test_utf_16(tmp_path: Path, capsys: pytest.CaptureFixture[str], encoding: str) -> None:
    for rank in RANKS:
        (tmp_path / f"rank{rank}.txt").write_bytes(f"\ufeff{dump(rank)}".encode(encoding))
    assert [who["rank"] for who in explained(capsys, tmp_path)["culprits"]] == [2]
