# ruff: noqa: E501 - log lines are as long as they are
"""``ray-sentinel triage``: the contract, exit codes, the user's own entries."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from ray_sentinel.cli.main import main
from ray_sentinel.diagnose.playbooks import playbooks
from ray_sentinel.logs.catalogue import load_catalogue

STEPS = "".join(f"2025-01-02 10:00:{n:02d} step {n} loss 2.0 time 1.0s\n" for n in range(40))
BOOM = '[rank3]: Traceback (most recent call last):\n[rank3]:   File "a.py", line 3, in f\n[rank3]: ValueError: boom\n'


def run(*args: object, capsys: pytest.CaptureFixture[str]) -> tuple[int, str, str]:
    code = main(["triage", *map(str, args)])
    out = capsys.readouterr()
    return code, out.out, out.err


@pytest.fixture
def log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("RAY_SENTINEL_LOG_DIR", str(tmp_path / "home"))
    path = tmp_path / "job" / "train.log"
    path.parent.mkdir()
    path.write_text(STEPS + BOOM)
    return path


def test_the_contract(log: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(log, "--json", capsys=capsys)
    answer = json.loads(out)
    assert code == 1
    assert answer["class"] == "python-exception"
    assert answer["evidence"][0]["file"] == "train.log"
    assert answer["evidence"][0]["line"] == 43
    assert answer["evidence"][0]["text"] == "ValueError: boom"
    assert answer["culprits"][0]["rank"] == 3
    assert answer["next_steps"]
    assert answer["progress"]["last_step"] == 39


def test_text_for_people(log: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(log, capsys=capsys)
    assert code == 1
    for part in ("python-exception", "culprit: rank 3", "train.log:43", "a.py:3 f", "last step 39"):
        assert part in out


@pytest.mark.parametrize("after", ["\n", "rank 1: done\n\n", "2025-01-02 10:01:01 INFO bye\n"])
def test_a_job_that_went_well(log: Path, capsys: pytest.CaptureFixture[str], after: str) -> None:
    """Also where another rank wrote between the line and its end."""
    log.write_text(STEPS + f"2025-01-02 10:01:00 INFO Training completed{after}")
    code, out, _ = run(log, "--json", capsys=capsys)
    assert (code, json.loads(out)["class"]) == (0, "completed")


def test_wrong_usage(log: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(capsys=capsys)[0] == 2
    assert run(log, "--live", capsys=capsys)[0] == 2
    code, out, err = run(log.parent / "gone", "--json", capsys=capsys)
    assert code == 2
    assert "gone" in json.loads(out)["error"]
    assert "gone" in err


def own_entry(text: str = "boom", kind: str = "storage") -> str:
    return (
        f'[[signature]]\nid = "own"\nclass = "{kind}"\nmatch = ["{text}"]\ncause = "Ours."\n'
        'remedy = ["Do this."]\n'
    )


def test_entries_of_ones_own(log: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    mine = tmp_path / "mine.toml"
    mine.write_text(own_entry())
    code, out, _ = run(log, "--catalogue", mine, "--json", capsys=capsys)
    answer = json.loads(out)
    assert (code, answer["class"], answer["signature"]) == (1, "storage", "own")
    assert answer["next_steps"][0] == "Do this."


@pytest.mark.parametrize("place", ["home", "job"])
def test_entries_in_the_log_dir(
    log: Path, tmp_path: Path, place: str, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / place
    folder.mkdir(exist_ok=True)
    (folder / "catalogue.toml").write_text(own_entry())
    _, out, _ = run(log.parent, "--json", capsys=capsys)
    assert json.loads(out)["signature"] == "own"


def test_a_bad_catalogue_is_explained(
    log: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    mine = tmp_path / "mine.toml"
    mine.write_text(own_entry(kind="storrage"))
    code, _, err = run(log, "--catalogue", mine, capsys=capsys)
    assert code == 2
    assert "mine.toml: signature own: class 'storrage'" in err
    mine.write_text("[[signature]\n")
    assert "not valid TOML" in run(log, "--catalogue", mine, capsys=capsys)[2]


def test_checkpoints_tell_what_is_lost(
    log: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "ckpt" / "step_30").mkdir(parents=True)
    (tmp_path / "ckpt" / "step_30" / "model.pt").write_bytes(b"x")
    _, out, _ = run(log, "--checkpoints", tmp_path / "ckpt", "--json", capsys=capsys)
    progress = json.loads(out)["progress"]
    assert (progress["checkpoint_step"], progress["lost_steps"]) == (30, 9)


def test_every_playbook_that_triage_names_is_there() -> None:
    known = {playbook.NAME for playbook in playbooks()}
    named = {advice.playbook for advice in load_catalogue().advice if advice.playbook}
    assert named
    assert named <= known


@pytest.mark.parametrize(("count", "said"), [(1, "1 line is"), (3, "3 lines are")])
def test_lines_that_are_looked_at_in_part_are_told(
    log: Path, capsys: pytest.CaptureFixture[str], count: int, said: str
) -> None:
    log.write_text(STEPS + ("x" * 6001 + "\n") * count + "y" * 6000 + "\n" + BOOM)
    told = f"train.log: {said} longer than 6000 characters"
    _, out, _ = run(log, "--json", capsys=capsys)
    assert [note for note in json.loads(out)["sampled"] if note.startswith(told)]
    _, out, _ = run(log, capsys=capsys)
    assert f"note: {told}" in " ".join(out.split())
    log.write_text(STEPS + BOOM)
    _, out, _ = run(log, "--json", capsys=capsys)
    assert json.loads(out)["sampled"] == []
