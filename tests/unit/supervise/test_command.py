"""The command of an attempt: its placeholders, its variables, and what cannot be started."""

from __future__ import annotations

from pathlib import Path

import pytest

from ray_sentinel.errors import UsageError
from ray_sentinel.supervise.attempt.command import filled, resolved, variables, words_of
from ray_sentinel.supervise.policy import ResumePoint


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
