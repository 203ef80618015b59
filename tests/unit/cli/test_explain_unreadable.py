"""``explain`` on what is not there, is empty, is garbage, or no file: said, never passed over."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from ray_sentinel.cli.main import main
from tests.support.bad_paths import EACH, bad

FIXTURES = Path(__file__).parents[2] / "fixtures"
STACKS = FIXTURES / "stacks" / "gloo_plain" / "plain"
QUIET_STACK = STACKS / "pyspy_node1_10262.txt"
DUMPS = FIXTURES / "flight_recorder" / "gloo_outside"
QUIET_POLL = FIXTURES / "nccl_ras" / "healthy_while_hung.txt"
NAME = "notes_9"
"""Such as a dump may have."""
KINDS = ("stacks", "flight-recorder", "nccl-ras", "stragglers")


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("what", EACH)
def test_alone_it_is_wrong_usage_that_names_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], kind: str, what: str
) -> None:
    path = bad(tmp_path, what, NAME)
    assert main(["explain", kind, path]) == 2
    assert path in capsys.readouterr().err


@pytest.mark.parametrize("what", EACH)
def test_stacks_beside_it_are_explained_and_it_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], what: str
) -> None:
    path = bad(tmp_path, what, NAME)
    assert main(["explain", "stacks", str(QUIET_STACK)]) == 0
    assert main(["explain", "stacks", str(QUIET_STACK), path, "--json"]) == 2
    assert main(["explain", "stacks", str(STACKS), path]) == 1
    told = capsys.readouterr()
    assert told.err.count(path) == 2
    assert "host-stuck" in told.out


def test_the_json_of_the_others_is_whole(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    main(["explain", "stacks", str(STACKS), bad(tmp_path, "missing", NAME), "--json"])
    assert len(json.loads(capsys.readouterr().out)["processes"]) == 4


def test_a_capture_that_only_says_that_its_tool_failed_is_no_stack(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "pyspy_node1_9.txt"
    file.write_text("Error: Failed to attach: Permission denied (os error 1)\n")
    assert main(["explain", "stacks", str(file), "--json"]) == 2
    told = capsys.readouterr()
    assert str(file) in told.err
    assert json.loads(told.out)["culprits"] == []


@pytest.mark.parametrize("what", EACH)
def test_polls_beside_it_are_explained(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], what: str
) -> None:
    path = bad(tmp_path, what, NAME)
    quiet = main(["explain", "nccl-ras", str(QUIET_POLL)])
    assert quiet == 0
    code = main(["explain", "nccl-ras", str(QUIET_POLL), path])
    # What a folder holds was not named, and an empty one misleads nobody about the polls beside it.
    assert code == (0 if what == "folder" else 2)
    assert (path in capsys.readouterr().err) == (what != "folder")


@pytest.mark.parametrize("kind", ["flight-recorder", "stragglers"])
@pytest.mark.parametrize("what", ["missing", "empty", "garbage", "fifo", "loop"])
def test_dumps_beside_it_are_explained(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], kind: str, what: str
) -> None:
    good = sorted(map(str, DUMPS.iterdir()))
    assert main(["explain", kind, *good]) == 0
    path = Path(bad(tmp_path, what, NAME))
    last = path.with_name("trace_9.json")
    if path.is_symlink() or path.exists():
        path.rename(last)
    assert main(["explain", kind, *good, str(last)]) != 0
    assert str(last) in capsys.readouterr().err


@pytest.mark.parametrize("kind", KINDS)
def test_a_fifo_among_the_files_of_a_folder_is_not_waited_for(tmp_path: Path, kind: str) -> None:
    for path in STACKS.iterdir():
        shutil.copy(path, tmp_path)
    for name in ("_dump_0", "pyspy_node1_9.txt", "ranks.json", "incident.json", "poll.json"):
        os.mkfifo(tmp_path / name)
    ended = subprocess.run(
        [sys.executable, "-m", "ray_sentinel", "explain", kind, str(tmp_path)],
        capture_output=True,
        timeout=60,
        check=False,
    )
    assert ended.returncode == (1 if kind == "stacks" else 2)
    assert b"Traceback" not in ended.stderr
