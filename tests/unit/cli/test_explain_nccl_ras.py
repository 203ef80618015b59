"""``ray-sentinel explain nccl-ras``: files, folders, what is printed, exit codes."""

from __future__ import annotations

import json
import tracemalloc
from io import BytesIO
from pathlib import Path

import pytest

from ray_sentinel.cli import ras_files
from ray_sentinel.cli.main import main
from ray_sentinel.cli.rank_table import rank_table
from ray_sentinel.cli.ras_files import content
from ray_sentinel.errors import InputError
from tests.support.ras_sim.job import Job
from tests.support.ras_sim.render import as_json, as_text


def run(capsys: pytest.CaptureFixture[str], *args: str) -> tuple[int, str, str]:
    code = main(["explain", "nccl-ras", *args])
    said = capsys.readouterr()
    return code, said.out, said.err


def test_a_file_of_zero_bytes_is_not_said_to_be_empty(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "poll.txt").write_bytes(bytes(1 << 20))
    code, _, err = run(capsys, str(tmp_path))
    assert code == 2
    assert "poll.txt: holds only zero bytes" in err


def test_of_a_file_of_zero_bytes_nothing_is_kept(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "poll.txt"
    with path.open("wb") as file:
        file.truncate(64 << 20)
    tracemalloc.start()
    try:
        code, _, err = run(capsys, str(path))
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert code == 2
    assert "poll.txt: holds only zero bytes" in err
    assert peak < 8 << 20


@pytest.mark.parametrize("hole", [0, 1, 4096, 64 << 10, (64 << 10) + 1, 1 << 20])
def test_a_hole_at_the_beginning_is_left_out(hole: int) -> None:
    text = b"Communicators... (1)\0\n"
    found = content(BytesIO(bytes(hole) + text + bytes(hole)))
    assert found.strip(b"\0") == text.strip(b"\0")
    assert len(found) < len(text) + hole + (64 << 10)


def test_a_file_is_read_up_to_its_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ras_files, "MAX_BYTES", 100 << 10)
    assert len(content(BytesIO(b"x" * (1 << 20)))) == 100 << 10
    assert content(BytesIO(bytes(1 << 20) + b"x")) == b"\0"
    assert content(BytesIO(bytes(70 << 10) + b"x" * (1 << 20))).count(b"x") == 30 << 10
    assert content(BytesIO(b"")) == b""


@pytest.fixture
def job() -> Job:
    made = Job(1, 2, 4)
    made.run(20)
    return made


def test_json_names_the_culprit(
    job: Job, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    job.world.launch("AllReduce", 3, but=(5,))
    (tmp_path / "1.json").write_text(as_json(job))
    job.wait(10)
    (tmp_path / "2.json").write_text(as_json(job))
    code, out, _ = run(capsys, str(tmp_path), "--json")
    found = json.loads(out)
    assert code == 1
    assert found["culprit_ranks"] == [5]
    assert found["kind"] == "not-enqueued"
    assert 0 < found["confidence"] <= 1
    assert found["evidence"]
    assert found["polls"] == 2
    assert found["version"] == "2.29.3"


def test_people_are_told_the_same(
    job: Job, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    job.peers[3].dead = True
    file = tmp_path / "ras.txt"
    file.write_text(as_text(job))
    code, out, _ = run(capsys, str(file))
    assert code == 1
    assert out.startswith("rank-dead: rank 3")


def test_a_job_without_findings_is_exit_code_0(
    job: Job, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "ras.json"
    file.write_text(as_json(job))
    code, out, _ = run(capsys, str(file), "--json")
    assert code == 0
    assert json.loads(out)["culprit_ranks"] == []


def test_other_files_are_exit_code_2_and_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "notes.md"
    file.write_text("hello")
    code, _, err = run(capsys, str(file))
    assert code == 2
    assert "notes.md" in err
    assert run(capsys, str(tmp_path / "missing"))[0] == 2


def test_ranks_are_joined_from_status(
    job: Job, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    job.world.launch("AllReduce", 3, but=(5,))
    (tmp_path / "ras.json").write_text(as_json(job))
    rows = [{"rank": 10 + p.world, "host": p.host, "pid": p.pid} for p in job.peers]
    (tmp_path / "status").write_text(json.dumps({"jobs": [{"job": "j", "ranks": rows}]}))
    options = ("--ranks", str(tmp_path / "status"), "--json")
    code, out, _ = run(capsys, str(tmp_path / "ras.json"), *options)
    assert code == 1
    assert json.loads(out)["culprit_ranks"] == [15]


def test_a_table_without_ranks_is_refused(tmp_path: Path) -> None:
    for text in ("{}", "[1, 2]", "nothing"):
        (tmp_path / "table").write_text(text)
        with pytest.raises(InputError, match="table"):
            rank_table(str(tmp_path / "table"))
