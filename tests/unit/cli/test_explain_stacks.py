"""``ray-sentinel explain stacks``: files in our layout, files from anywhere, several looks."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from ray_sentinel.cli.main import main
from ray_sentinel.cli.stack_files import load
from ray_sentinel.errors import InputError
from ray_sentinel.evidence.stacks.same import fold

FIXTURES = Path(__file__).parents[2] / "fixtures" / "stacks"
PLAIN = FIXTURES / "gloo_plain" / "plain"


def explained(capsys: pytest.CaptureFixture[str], *paths: object) -> tuple[int, dict[str, Any]]:
    code = main(["explain", "stacks", *map(str, paths), "--json"])
    return code, json.loads(capsys.readouterr().out)


def test_a_folder_in_our_layout(capsys: pytest.CaptureFixture[str]) -> None:
    code, found = explained(capsys, PLAIN)
    assert code == 1
    assert found["kind"] == "host-stuck"
    assert found["culprit_ranks"] == []
    (culprit,) = found["culprits"]
    assert (culprit["host"], culprit["pid"]) == ("node1", 10263)
    assert 0 < found["confidence"] < 1
    assert found["evidence"]
    assert len(found["processes"]) == 4
    assert found["classes"][0]["count"] == 1
    assert found["rounds"] == 1


@pytest.mark.parametrize(
    "prefix",
    ["[rank0]: ", "0: ", "(RayTrainWorker pid=10263, ip=10.0.0.1) ", "2025-10-29T11:25:58.1Z ",
     "2025-10-29T11:25:58.1Z stdout F ", "node03: ", "[default0]:"],
)  # fmt: skip
def test_dumps_in_logs_are_read(
    prefix: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for path in PLAIN.glob("pyspy_*"):
        lines = path.read_text().splitlines()
        (tmp_path / f"{path.stem[-5:]}.log").write_text("".join(f"{prefix}{x}\n" for x in lines))
    _, plain = explained(capsys, PLAIN)
    _, found = explained(capsys, tmp_path)
    assert found["kind"] == plain["kind"]
    assert len(found["processes"]) == len(plain["processes"])


def test_two_folders_are_two_looks(capsys: pytest.CaptureFixture[str]) -> None:
    _, once = explained(capsys, PLAIN)
    _, twice = explained(capsys, PLAIN, PLAIN)
    assert twice["rounds"] == 2
    assert twice["confidence"] > once["confidence"]
    assert {p["movement"] for p in twice["processes"]} == {"stuck"}


def test_subfolders_are_looks_in_natural_order(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("round2", "round10"):
        shutil.copytree(PLAIN, tmp_path / name)
    late = tmp_path / "round10" / "pyspy_node1_10263.txt"
    late.write_text(late.read_text().replace("read_table", "write_table"))
    _, found = explained(capsys, tmp_path)
    assert found["rounds"] == 2
    (culprit,) = found["culprits"]
    assert "write_table" in culprit["reason"]


def test_folders_of_different_nodes_are_one_look(tmp_path: Path) -> None:
    for number, path in enumerate(sorted(PLAIN.iterdir())):
        folder = tmp_path / f"node{number % 2}"
        folder.mkdir(exist_ok=True)
        shutil.copy(path, folder / path.name.replace("node1", f"node{number % 2}"))
    files = load([str(tmp_path)])
    assert len(files.rounds) == 1
    assert len(files.rounds[0]) == 4


def test_py_spy_and_cuda_gdb_of_one_process_are_merged(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for folder in (FIXTURES / "gloo_ddp" / "plain", FIXTURES / "gloo_ddp" / "gdb"):
        for path in folder.iterdir():
            shutil.copy(path, tmp_path)
    _, found = explained(capsys, tmp_path)
    assert found["rounds"] == 1
    assert len(found["processes"]) == 4
    merged = next(p for p in found["processes"] if p["pid"] == 10329)
    assert merged["waits_for_others"] is True
    assert [c["pid"] for c in found["culprits"]] == [10331]


@pytest.mark.parametrize(
    ("titles", "rank"),
    [
        (["TP0", "TP1", "TP2", "TP3"], 2),
        (["PP0_TP0", "PP0_TP1", "PP1_TP0", "PP1_TP1"], 2),
        (["TP0_PP0_DP0_EP0", "TP1_PP0_DP0_EP1", "TP0_PP1_DP0_EP0", "TP1_PP1_DP0_EP1"], 2),
        (["TP0_DP1", "TP1_DP1", "TP0_DP2", "TP1_DP2"], None),
    ],
)
def test_titles_give_the_world_rank_where_they_can(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], titles: list[str], rank: int | None
) -> None:
    for title, path in zip(titles, sorted(PLAIN.iterdir()), strict=True):
        text = path.read_text().replace("/usr/bin/python ranks.py", f"sglang::scheduler_{title}")
        (tmp_path / path.name).write_text(text)
    _, found = explained(capsys, tmp_path)
    assert found["culprit_ranks"] == ([] if rank is None else [rank])
    assert [culprit["pid"] for culprit in found["culprits"]] == [10263]


@pytest.mark.parametrize("how", ["name", "folder", "comment", "option", "table"])
def test_the_rank_is_taken_from_where_it_stands(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], how: str
) -> None:
    table = []
    for rank, path in enumerate(sorted(PLAIN.iterdir())):
        text, folder, name = path.read_text(), tmp_path, path.name
        if how == "name":
            name = f"stack_rank{rank}.txt"
        elif how == "folder":
            folder = tmp_path / f"rank_{rank}"
        elif how == "comment":
            text = f"# rank: {rank}\n{text}"
        elif how == "option":
            text = text.replace("ranks.py", f"ranks.py --local-rank 0 --rank {rank}")
        table.append({"rank": rank, "host": "node1", "pid": int(path.stem.rsplit("_", 1)[1])})
        folder.mkdir(exist_ok=True)
        (folder / name).write_text(text)
    if how == "table":
        (tmp_path / "ranks.json").write_text(json.dumps(table))
    code, found = explained(capsys, tmp_path)
    assert (code, found["culprit_ranks"]) == (1, [2])


def test_process_titles_of_engines_carry_the_rank(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for rank, path in enumerate(sorted(PLAIN.iterdir())):
        text = path.read_text().replace("/usr/bin/python ranks.py", f"sglang::scheduler_TP{rank}")
        (tmp_path / path.name).write_text(text)
    _, found = explained(capsys, tmp_path)
    assert found["culprit_ranks"] == [2]


def test_files_named_otherwise_and_other_files_beside_them(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for number, path in enumerate(sorted(PLAIN.iterdir())):
        shutil.copy(path, tmp_path / f"dump-{number}.log")
    (tmp_path / "notes.log").write_text("nothing here\n")
    (tmp_path / "report.md").write_text(sorted(PLAIN.iterdir())[0].read_text())
    (tmp_path / "raw.bin").write_bytes(os.urandom(5_000))
    _, found = explained(capsys, tmp_path)
    assert [c["pid"] for c in found["culprits"]] == [10263]
    assert len(found["files"]) == 4
    assert any("notes.log" in item for item in found["skipped"])


def test_in_our_layout_other_files_are_not_taken_for_captures(tmp_path: Path) -> None:
    shutil.copytree(PLAIN, tmp_path, dirs_exist_ok=True)
    (tmp_path / "train.log").write_text('Traceback:\n  File "a.py", line 3, in f\n')
    files = load([str(tmp_path)])
    assert len(files.rounds[0]) == 4
    assert any("train.log" in reason for reason in files.skipped)


def test_a_fifo_and_a_folder_without_stacks(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    os.mkfifo(tmp_path / "pyspy_node1_5.txt")
    assert main(["explain", "stacks", str(tmp_path)]) == 2
    assert "no stacks" in capsys.readouterr().err
    with pytest.raises(InputError):
        load([str(tmp_path / "pyspy_node1_5.txt")])


def test_a_path_that_is_not_there(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", "stacks", "/not/there", "--json"]) == 2
    assert "/not/there" in json.loads(capsys.readouterr().out)["error"]


def test_a_capture_that_failed_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shutil.copytree(PLAIN, tmp_path, dirs_exist_ok=True)
    (tmp_path / "cudagdb_node1_99.txt").write_text("cuda-gdb failed or timed out\n")
    _, found = explained(capsys, tmp_path)
    assert [c["pid"] for c in found["culprits"]] == [10263]
    assert any("D state" in text for text in found["evidence"])


def test_for_people(capsys: pytest.CaptureFixture[str]) -> None:
    code = main(["explain", "stacks", str(PLAIN), "--tree"])
    out = capsys.readouterr().out
    assert code == 1
    assert out.startswith("host-stuck: pid 10263 on node1, confidence ")
    assert "read_table (ranks.py:8)" in out
    assert "all_reduce" in out


def test_hostile_text_does_not_drive_the_terminal(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = (
        'Process 5: python\nThread 5 (idle): "MainThread"\n    f\x1b]0;x\x07\u202e[bold] (a.py:1)\n'
    )
    (tmp_path / "pyspy_h_5.txt").write_text(text)
    main(["explain", "stacks", str(tmp_path)])
    out = capsys.readouterr().out
    assert "\x1b" not in out
    assert "\u202e" not in out
    assert "[bold]" in out


def test_nobody_apart_is_exit_code_0_or_a_stall(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("pyspy_node1_10263.txt",):
        shutil.copy(PLAIN / name, tmp_path)
    code, found = explained(capsys, tmp_path)
    assert (code, found["culprits"]) == (0, [])


def test_equal_stacks_that_are_kept_once_are_read_for_every_rank(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    waits = "    all_reduce (torch/distributed/distributed_c10d.py:2810)\n" + "".join(
        f"    step_{depth} (/app/train.py:{depth})\n" for depth in range(20)
    )
    reads = waits.replace("all_reduce (torch/distributed/distributed_c10d.py", "take (/app/feed.py")
    files = {
        f"pyspy_n_{70 + rank}.txt": (
            f"# rank: {rank}\nProcess {70 + rank}: train\n\n"
            f'Thread {70 + rank} (idle): "MainThread"\n{reads if rank == 2 else waits}'
        ).encode()
        for rank in range(6)
    }
    for name, data in fold(files).items():
        (tmp_path / name).write_bytes(data)
    assert (tmp_path / "pyspy_n_75.txt").stat().st_size < 200
    found = explained(capsys, tmp_path)[1]
    assert found["culprit_ranks"] == [2]
    assert len(found["processes"]) == 6


def test_on_one_host_the_launcher_s_local_rank_is_the_rank(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for host in ("a", "b"):
        for rank in range(4):
            waits = "all_reduce (torch/distributed/distributed_c10d.py:2)"
            frame = "take (/app/feed.py:9)" if rank == 1 else waits
            (tmp_path / f"pyspy_{host}_{80 + rank}.txt").write_text(
                f"Process {80 + rank}: python -u train.py --local_rank={rank}\n\n"
                f'Thread {80 + rank} (idle): "MainThread"\n    {frame}\n    main (/app/r.py:3)\n'
            )
    one_host = sorted(tmp_path.glob("pyspy_a_*"))
    assert explained(capsys, *one_host)[1]["culprit_ranks"] == [1]
    assert explained(capsys, tmp_path)[1]["culprit_ranks"] == []


def test_kernel_logs_of_two_hosts_share_no_process(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    task = (
        "[ 9.1] task:python  state:D stack:0 pid:{pid} ppid:7 flags:0x4\n"
        "[ 9.1]  nfs_wait_on_request+0x4b/0x70 [nfs]\n[ 9.1]  do_syscall_64+0x59/0xc0\n"
    )
    (tmp_path / "dmesg-a.txt").write_text(task.format(pid=41) + task.format(pid=42))
    (tmp_path / "dmesg-b.txt").write_text(task.format(pid=41))
    _, found = explained(capsys, tmp_path / "dmesg-a.txt", tmp_path / "dmesg-b.txt")
    assert found["rounds"] == 1
    places = [(one["host"], one["pid"]) for one in found["classes"][0]["members"]]
    assert places == [("dmesg-a", 41), ("dmesg-a", 42), ("dmesg-b", 41)]


def test_equally_named_kernel_logs_are_told_apart_by_their_folders(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for node in ("node1", "node2"):
        (tmp_path / node).mkdir()
        (tmp_path / node / "dmesg.txt").write_text(
            "[ 9.1] task:python  state:D stack:0 pid:41 ppid:7 flags:0x4\n"
            "[ 9.1]  nfs_wait_on_request+0x4b/0x70 [nfs]\n"
        )
    _, found = explained(capsys, tmp_path)
    places = [(one["host"], one["pid"]) for one in found["classes"][0]["members"]]
    assert places == [("node1", 41), ("node2", 41)]


def test_kernel_stacks_of_one_process_stay_one_in_files_of_any_name(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    stack = 'Process 9: python train.py\nThread 9 (S) "python"\n[<0>] futex_wait+0x67/0x120\n'
    for name in ("before.txt", "after.txt"):
        (tmp_path / name).write_text(stack)
    (tmp_path / "spied.txt").write_text(
        'Process 9: python train.py\n\nThread 9 (idle): "MainThread"\n    step (train.py:3)\n'
    )
    _, found = explained(capsys, tmp_path)
    assert found["rounds"] == 2
    assert [(one["host"], one["pid"]) for one in found["processes"]] == [("", 9)]
