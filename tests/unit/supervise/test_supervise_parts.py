"""Placeholders, checkpoints that load, tiers, incurable failures, and movement."""

from __future__ import annotations

import io
import json
import struct
import zipfile
from pathlib import Path

import pytest

from ray_sentinel.errors import UsageError
from ray_sentinel.logs.checkpoints import scan_checkpoints
from ray_sentinel.supervise.attempt.command import filled, resolved, variables, words_of
from ray_sentinel.supervise.attempt.movement import AttemptMovement
from ray_sentinel.supervise.checkpoint_choice import choose
from ray_sentinel.supervise.curable import HUB_TRIES, incurable, normalised
from ray_sentinel.supervise.loadable import problem_of
from ray_sentinel.supervise.policy import Failure, Policy, ResumePoint


def test_placeholders() -> None:
    found = ResumePoint(path="/c/a b\nstep_7", step=7)
    argv = ["t.py", "--resume={checkpoint}", "{step}/{attempt}", "{other}", "{'a': 1}"]
    assert filled(argv, 2, found)[1:] == ["--resume=/c/a b\nstep_7", "7/2", "{other}", "{'a': 1}"]
    assert filled(argv, 0, None)[1:3] == ["--resume=", "0/0"]
    assert "RAY_SENTINEL_CHECKPOINT" not in variables("job", 0, None)
    assert variables("job", 2, found)["RAY_SENTINEL_CHECKPOINT"] == found.path


def test_bad_nodes_in_a_command() -> None:
    argv = ["srun", "--exclude={bad_nodes}", "-x", "{bad_nodes}", "--x=a,{bad_nodes}", "t{attempt}"]
    two = ["n7", "10.0.0.1"]
    assert filled(argv, 1, None, two) == [
        "srun", "--exclude=n7,10.0.0.1", "-x", "n7,10.0.0.1", "--x=a,n7,10.0.0.1", "t1",
    ]  # fmt: skip
    # An option that would be empty is not there at all; an argument of its own is empty.
    assert filled(argv, 0, None) == ["srun", "-x", "", "--x=a", "t0"]
    assert filled(["sh", "-c", "train --without={bad_nodes} x"], 0, None)[2] == (
        "train --without= x"
    )
    assert variables("job", 1, None, two)["RAY_SENTINEL_BAD_NODES"] == "n7,10.0.0.1"
    assert variables("job", 0, None)["RAY_SENTINEL_BAD_NODES"] == ""


def test_what_a_checkpoint_is_called_is_no_placeholder() -> None:
    odd = ResumePoint(path="/c/{step}/{bad_nodes}", step=7)
    assert filled(["t", "{checkpoint}"], 0, odd, ["n7"]) == ["t", "/c/{step}/{bad_nodes}"]


def test_commands_that_cannot_be_started(tmp_path: Path) -> None:
    script = tmp_path / "train.sh"
    script.write_text("#!/bin/sh\n")
    with pytest.raises(UsageError, match="no such program on PATH"):
        resolved(["no-such-program-here"])
    with pytest.raises(UsageError, match=r"no such program$"):
        resolved([str(tmp_path / "none")])
    with pytest.raises(UsageError, match="chmod"):
        resolved([str(script)])
    with pytest.raises(UsageError, match="folder"):
        resolved([str(tmp_path)])
    with pytest.raises(UsageError, match="-- CMD"):
        resolved([])
    script.chmod(0o755)
    assert resolved([str(script)]) == str(script)


def test_what_is_no_list_of_words() -> None:
    assert words_of([Path("/bin/true"), "a"]) == ["/bin/true", "a"]
    for wrong in ("python train.py", "it's", b"train"):
        with pytest.raises(UsageError, match="list of words"):
            words_of(wrong)  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="write '3'"):
        words_of(["train", 3])  # type: ignore[list-item]
    with pytest.raises(UsageError, match="zero byte"):
        words_of(["train", "a\0b"])


def torch_file(path: Path) -> Path:
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w") as file:
        file.writestr("archive/data.pkl", b"x" * 5000)
    path.write_bytes(data.getvalue())
    return path


def safetensors(path: Path) -> Path:
    header = json.dumps({"w": {"dtype": "F32", "shape": [9], "data_offsets": [0, 36]}}).encode()
    path.write_bytes(struct.pack("<Q", len(header)) + header + bytes(36))
    return path


@pytest.mark.parametrize("make", [torch_file, safetensors])
@pytest.mark.parametrize("kept", [0, 5, 12, 60])
def test_files_that_were_cut_off(tmp_path: Path, make, kept: int) -> None:
    name = "model.safetensors" if make is safetensors else "model.pt"
    file = make(tmp_path / name)
    assert problem_of(tmp_path) == ""
    file.write_bytes(file.read_bytes()[:kept])
    assert name in problem_of(tmp_path)


def test_other_files_and_what_is_gone(tmp_path: Path) -> None:
    (tmp_path / "optimizer.pt").write_bytes(b"\x80\x02legacy pickle")
    (tmp_path / "notes.txt").touch()
    assert problem_of(tmp_path) == ""
    assert "No such file" in problem_of(tmp_path / "none")
    (tmp_path / "bad.safetensors").write_bytes(struct.pack("<Q", 1 << 60))
    assert "header" in problem_of(tmp_path)


def test_the_best_checkpoint_of_all_tiers(tmp_path: Path) -> None:
    fast, slow = tmp_path / "fast", tmp_path / "slow"
    for root, step in ((fast, 30), (fast, 20), (slow, 20), (slow, 10)):
        folder = root / f"step_{step}"
        folder.mkdir(parents=True)
        torch_file(folder / "model.pt")
    found = choose([fast, slow], (), scan_checkpoints)
    assert found.checkpoint is not None
    assert found.checkpoint.path == str(fast / "step_30")
    (fast / "step_30/model.pt").write_bytes(b"PK\x03\x04cut")
    found = choose([fast, slow], (), scan_checkpoints)
    assert found.checkpoint is not None
    assert found.checkpoint.path == str(fast / "step_20")
    assert "was cut off" in found.skipped[0]
    found = choose([fast, slow, tmp_path / "none"], {found.checkpoint}, scan_checkpoints)
    assert found.checkpoint is not None
    assert found.checkpoint.path == str(slow / "step_20")
    assert "none" in found.unreadable[0]


def test_a_checkpoint_that_is_being_written_is_left_out(tmp_path: Path) -> None:
    for step in (10, 20):
        folder = tmp_path / f"step_{step}"
        folder.mkdir()
        torch_file(folder / "model.pt")
    (tmp_path / "step_20/shard.tmp").touch()
    found = choose([tmp_path], (), scan_checkpoints)
    assert found.checkpoint is not None
    assert found.checkpoint.step == 10


@pytest.mark.parametrize(
    ("failure", "says"),
    [
        (Failure(kind="exit", text="", code=127), "not found"),
        (Failure(kind="exit", text="", code=126), "not executable"),
        (Failure(kind="not-started", text="Argument list too long", code=127), "list too long"),
        (Failure(kind="exit", text="", code=2, seconds=1.0), "called wrongly"),
        (Failure(kind="missing-env", text="RANK is missing", code=1), "configuration"),
        (Failure(kind="x", text="", exception="FileNotFoundError: data.bin", code=1), "missing"),
    ],
)
def test_failures_that_a_restart_cannot_cure(failure: Failure, says: str) -> None:
    assert says in incurable(failure, [])


@pytest.mark.parametrize(
    "failure",
    [
        Failure(kind="exit", text="", code=2, seconds=500.0),
        Failure(kind="not-started", text="Resource temporarily unavailable", code=127),
        Failure(kind="not-started", text="Cannot allocate memory", code=127),
        Failure(kind="exit", text="", code=2, seconds=1.0, step=10),
        Failure(kind="x", text="", exception="FileNotFoundError: shard-N", code=1, step=500),
        Failure(kind="signal", text="", signal=9),
        Failure(kind="nccl-timeout", text="", code=1),
        Failure(kind="transport-lost", text="", code=1),
        Failure(kind="startup-stuck", text="", code=1),
        Failure(kind="checkpoint-load", text="", exception="FileNotFoundError: optimizer.pt"),
        Failure(kind="exit", text="", code=127, began=True),
    ],
)
def test_failures_that_it_may_cure(failure: Failure) -> None:
    assert incurable(failure, []) == ""


def test_a_hub_out_of_reach_is_waited_for_but_not_for_ever() -> None:
    away = Failure(kind="hub-unreachable", text="503 Server Error", code=1, seconds=30.0)
    other = Failure(kind="preempted", text="")
    for tries in range(HUB_TRIES - 1):
        assert incurable(away, [away] * tries) == ""
    assert "HF_HUB_OFFLINE" in incurable(away, [away] * (HUB_TRIES - 1))
    assert incurable(away, [*[away] * (HUB_TRIES - 1), other]) == "", "in a row"


def test_an_expired_token_is_no_outage() -> None:
    failure = Failure(kind="config", text="401 Client Error: Unauthorized", code=1)
    assert "configuration" in incurable(failure, [])


def test_equal_exceptions_are_equal_whatever_their_numbers() -> None:
    one = normalised("RuntimeError: CUDA error at 0x7f00 on rank 3")
    assert one == normalised("RuntimeError: CUDA error at 0x7fff on rank 12")
    assert one != normalised("RuntimeError: NCCL error at 0x7fff on rank 12")


def test_movement() -> None:
    policy = Policy(stagnation_threshold=100, startup_threshold=500)
    moves = AttemptMovement(policy, 0.0)
    moves.spoke(400.0)
    assert moves.stagnates(899.0) == ""
    assert "no output" in moves.stagnates(901.0)
    assert moves.stepped(1, 950.0)
    assert moves.stepped(2, 960.0)
    assert not moves.stepped(2, 1000.0)
    assert moves.stagnates(1059.0) == ""
    assert "after step 2" in moves.stagnates(1061.0)
    moves.spoke(1050.0)
    assert moves.stagnates(1149.0) == "", "an evaluation prints, and makes no steps"
    assert moves.stagnates(1151.0) != ""
    for moment in range(1100, 1460, 50):
        moves.spoke(float(moment))
    assert moves.stagnates(1459.0) == ""
    assert "after step 2" in moves.stagnates(1461.0), "and so do some jobs that hang"
    moves.saved(1461.0)
    assert moves.stagnates(1500.0) == ""
    assert AttemptMovement(Policy(startup_threshold=0), 0.0).stagnates(1e9) == ""
