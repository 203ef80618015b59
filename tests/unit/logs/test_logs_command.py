"""``ray-sentinel logs``: listing, choosing, marking, following."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest

from ray_sentinel.cli.main import main
from ray_sentinel.clock import FakeClock
from ray_sentinel.logs.catalogue import load_catalogue
from ray_sentinel.logs.find import find_logs
from ray_sentinel.logs.follow import follow
from ray_sentinel.logs.select import LineFilter, choose, describe

WORKERS = {"node001": ((0, 4100), (1, 4101)), "node002": ((2, 4200), (3, 4201))}


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    for host, ranks in WORKERS.items():
        folder = tmp_path / "ray_logs" / host
        folder.mkdir(parents=True)
        (folder / "raylet.out").write_text("[2025-01-02 10:00:00,000 I 1 1] (raylet) x\n")
        for rank, pid in ranks:
            name = f"worker-{'ab' * 28}-01000000-{pid}.err"
            (folder / name).write_text(
                f":job_id:01000000\n:actor_name:Trainer\nRANK={rank}\n"
                f"2025-01-02 10:00:0{rank} INFO step of {rank}\n"
                f"2025-01-02 10:00:1{rank} ERROR bad thing on {rank} token=secretsecret\n"
            )
    (tmp_path / "driver.log").write_text(
        "(Trainer pid=4201, ip=10.0.0.2) ValueError: boom [repeated 3x across cluster]\n"
        "(Trainer pid=4100) hello\n"
    )
    return tmp_path


def run(*args: object, capsys: pytest.CaptureFixture[str]) -> tuple[int, str]:
    code = main(["logs", *map(str, args)])
    return code, capsys.readouterr().out


def test_a_ranks_logs_are_none_of_the_files_that_ray_keeps_about_its_ports(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    logs = tmp_path / "session_2026" / "logs"
    logs.mkdir(parents=True)
    (logs / f"worker-{'ab' * 28}-01000000-7.out").write_text("RANK=3\nstep 1\n")
    (tmp_path / "prom_metrics_service_discovery.json").write_text("[]\n")
    for name in ("metrics_agent", "metrics_export", "runtime_env_agent", "gcs_server"):
        (logs.parent / f"{name}_port_{'3d' * 28}").write_text("44217")
    (logs.parent / "node_ip_address.json").write_text("{}")
    code, out = run(tmp_path, "--rank", 3, "--json", capsys=capsys)
    assert code == 0
    assert [row["pid"] for row in json.loads(out)] == [7]


def test_listing(tree: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, out = run(tree, "--json", capsys=capsys)
    rows = {row["file"]: row for row in json.loads(out)}
    assert code == 0
    assert len(rows) == 7
    worker = rows[f"ray_logs/node002/worker-{'ab' * 28}-01000000-4201.err"]
    assert (worker["rank"], worker["node"], worker["pid"], worker["actor"]) == (
        3, "node002", 4201, "Trainer",
    )  # fmt: skip


@pytest.mark.parametrize(
    ("wanted", "labels"),
    [
        (LineFilter(rank=2), {"4200", "driver"}),
        (LineFilter(pid=4201), {"4201", "driver"}),
        (LineFilter(node="node001", kind="worker"), {"4100", "4101"}),
        (LineFilter(actor="train", kind="worker"), {"4100", "4101", "4200", "4201"}),
        (LineFilter(kind="raylet"), {"raylet"}),
        (LineFilter(rank=99, kind="worker"), set()),
    ],
)
def test_choosing(tree: Path, wanted: LineFilter, labels: set[str]) -> None:
    files = choose(describe(find_logs(tree)), wanted)
    names = {Path(item.file.label).name for item in files}
    assert {label for label in labels if any(label in name for name in names)} == labels
    assert all(any(label in name for label in labels) for name in names)


def test_errors_of_one_process_over_files(tree: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, out = run(tree, "--pid", 4201, "--errors", "--json", capsys=capsys)
    texts = [row["line"]["text"] for row in json.loads(out)]
    assert code == 0
    assert texts == ["ValueError: boom", "2025-01-02 10:00:13 ERROR bad thing on 3 token=***"]
    folded = json.loads(out)[0]["line"]
    assert (folded["repeated"], folded["mark"]) == (3, "error")


def test_text_for_people(tree: Path, capsys: pytest.CaptureFixture[str]) -> None:
    _, out = run(tree, "--pid", 4201, "--errors", capsys=capsys)
    assert "! driver.log Trainer pid 4201 10.0.0.2: ValueError: boom [x3]" in out
    assert "secretsecret" not in out


def test_merged_by_time(tree: Path, capsys: pytest.CaptureFixture[str]) -> None:
    _, out = run(tree, "--kind", "worker", "--tail", 1, "--json", capsys=capsys)
    assert [row["line"]["text"][-22:-20] for row in json.loads(out)] == [
        row["line"]["text"][-22:-20] for row in sorted(json.loads(out), key=lambda r: r["time"])
    ]


def test_nothing_fits(tree: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(tree, "--rank", 99, "--kind", "worker", capsys=capsys)[0] == 1


def test_following_growth_and_rotation(tmp_path: Path) -> None:
    path = tmp_path / "train.log"
    path.write_text("old\n")
    rounds = iter((b"new 1\nhalf", b" done\n", None, b""))

    def more() -> bool:
        step = next(rounds)
        if step is None:
            path.write_text("a\n")
        elif step:
            with path.open("ab") as file:
                file.write(step)
        return step != b""

    files = describe(find_logs(tmp_path))
    lines = follow(files, LineFilter(), load_catalogue(), FakeClock(), errors=False, more=more)
    assert [shown.line.text for shown in lines] == ["new 1", "half done", "a"]


@pytest.mark.parametrize("how", ["--tail=2", "--errors"])
def test_a_damaged_file_is_told_beside_the_others(
    tree: Path, how: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (tree / "garbage.log.gz").write_bytes(b"\x1f\x8b\x08garbage")
    lines = "".join(f"ERROR bad thing number {number}\n" for number in range(9000))
    packed = gzip.compress(lines.encode())
    (tree / "torn.log.gz").write_bytes(packed[: len(packed) // 2])
    code, out = run(tree, how, capsys=capsys)
    assert code == 0
    assert "! garbage.log.gz: (cannot be read (" in out
    assert "! torn.log.gz: ERROR bad thing number " in out
    assert "! torn.log.gz: (could be read only in part (" in out
    assert out.count("copy it again from where it was packed") == 2
    assert "bad thing on 3" in out


def test_lines_that_are_shown_in_part_are_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "train.log"
    path.write_text("a\n" + "x" * 20_000 + "\nb\n")
    code, out = run(path, "--tail", "3", "--json", capsys=capsys)
    (*_, note) = json.loads(out)
    assert (code, note["label"], note["line"]["mark"]) == (0, "train.log", "warning")
    assert note["line"]["text"].startswith("(1 line is longer than 16384 bytes")
    _, out = run(path, "--tail", "3", capsys=capsys)
    assert "(1 line is longer than 16384 bytes" in " ".join(out.split())
    _, out = run(path, "--tail", "1", "--json", capsys=capsys)
    assert len(json.loads(out)) == 1


def test_a_line_without_an_end_is_followed_in_pieces(tmp_path: Path) -> None:
    path = tmp_path / "train.log"
    path.write_text("a\n")
    looks: list[int] = []

    def more() -> bool:
        if looks and len(looks) < 3:
            with path.open("a") as file:
                file.write("x" * 30_000)
        looks.append(1)
        return len(looks) < 5

    files = choose(describe(find_logs(path)), LineFilter())
    clock = FakeClock()
    lines = list(follow(files, LineFilter(), load_catalogue(), clock, errors=False, more=more))
    assert sum(line.line.text.startswith("x") for line in lines) == 2
