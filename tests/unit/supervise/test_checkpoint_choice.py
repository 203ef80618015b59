"""The checkpoint to resume from: the newest of all tiers that is whole."""

from __future__ import annotations

import io
import json
import os
import struct
import zipfile
from pathlib import Path

import pytest

from ray_sentinel.logs.checkpoints import scan_checkpoints
from ray_sentinel.supervise.checkpoint_choice import choose
from ray_sentinel.supervise.loadable import problem_of


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


def test_what_is_no_file_of_a_writer_holds_nobody_up(tmp_path: Path) -> None:
    whole = tmp_path / "step_10"
    whole.mkdir()
    torch_file(whole / "model.pt")
    for name in ("latest", "step_10/model.safetensors", "step_10/trainer_state.json"):
        os.mkfifo(tmp_path / name)
    (tmp_path / "latest_checkpointed_iteration.txt").symlink_to("/dev/zero")
    assert [one.files for one in scan_checkpoints(tmp_path).checkpoints] == [1]
    (skipped,) = choose([tmp_path], (), scan_checkpoints).skipped
    assert skipped.endswith("model.safetensors: is empty")
