"""Lightning's hparams.yaml as a source of configuration."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from ray_sentinel.cli.main import main
from ray_sentinel.errors import InputError
from ray_sentinel.store.event_files.config import MAX_VALUE
from ray_sentinel.store.event_files.find import find_event_files
from ray_sentinel.store.event_files.hparams import (
    MOST_BYTES,
    NAME,
    hparams_alone,
    parse_hparams,
    read_hparams,
)
from ray_sentinel.store.event_files.source import load_events
from tests.support.event_files import write

WRITTEN = b"""\
batch_size: 32
betas: !!python/tuple
- 0.9
- 0.95
lr: 1.0e-3
model:
  width: 4096
  act: !!python/name:torch.nn.functional.gelu ''
name: null
warmup: [10, 20]
"""
PLAIN = {"batch_size": "32", "lr": "0.001", "model.width": "4096", "warmup": "10, 20"}


def put(folder: Path, data: bytes = WRITTEN) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / NAME).write_bytes(data)
    return folder


def test_what_lightning_writes_is_read_without_its_python_values() -> None:
    assert parse_hparams(WRITTEN) == PLAIN
    assert parse_hparams(b"{}\n") == {}
    assert parse_hparams(b"") == {}


@pytest.mark.parametrize("data", [b"- 1", b"a: [1", b"lr: 1\n  b: 2", b"{a: " * 5000, b"a\x00: 1"])
def test_other_files_are_no_parameters(data: bytes, tmp_path: Path) -> None:
    assert parse_hparams(data) is None
    notes: list[str] = []
    assert read_hparams(put(tmp_path, data), notes) == {}
    assert notes == [f"{tmp_path / NAME} is no YAML mapping; its parameters are not known"]


def test_code_in_it_is_not_run(tmp_path: Path) -> None:
    trace = tmp_path / "trace"
    data = f"a: !!python/object/apply:os.mkdir ['{trace}']\nb: 1\n"
    assert parse_hparams(data.encode()) == {"b": "1"}
    assert not trace.exists()


def test_anchors_that_multiply_and_long_values_stay_bounded() -> None:
    nested = b"a: &x {" + b", ".join(b"k%d: *x" % place for place in range(100)) + b"}"
    assert parse_hparams(nested) == {}
    found = parse_hparams(b"a: " + b"x" * 5000 + b"\nb: [" + b"12345, " * 5000 + b"1]\n")
    assert found is not None
    assert {len(value) for value in found.values()} <= set(range(MAX_VALUE + 1))


def test_a_file_too_large_or_unreadable_is_said(tmp_path: Path) -> None:
    notes: list[str] = []
    put(tmp_path / "a", b"#" * (MOST_BYTES + 1))
    (tmp_path / "b" / NAME).mkdir(parents=True)
    assert read_hparams(tmp_path / "a", notes) == read_hparams(tmp_path / "b", notes) == {}
    assert ["larger than 256 KiB" in notes[0], "cannot be read" in notes[1]] == [True, True]


def test_beside_event_files_it_is_their_runs_configuration(tmp_path: Path) -> None:
    write(put(tmp_path / "version_0"), range(30))
    assert load_events(find_event_files(tmp_path)).config == PLAIN


def test_runs_of_the_csv_logger_are_compared_by_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    put(tmp_path / "a" / "lightning_logs" / "version_0")
    put(tmp_path / "b" / "lightning_logs" / "version_0", WRITTEN.replace(b"32", b"64"))
    assert main(["compare", str(tmp_path / "a"), str(tmp_path / "b"), "--json"]) == 0
    (found,) = json.loads(capsys.readouterr().out)["comparisons"]
    assert found["config"] == {"batch_size": ["32", "64"]}


def test_of_several_one_is_chosen_by_name(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    put(tmp_path / "version_0")
    put(tmp_path / "version_1", WRITTEN.replace(b"32", b"64"))
    notes: list[str] = []
    assert hparams_alone(tmp_path, "", notes) == {}
    assert "parameters of 2 runs (version_0, version_1): none are taken" in notes[0]
    assert hparams_alone(tmp_path, "version_1", notes)["batch_size"] == "64"
    with pytest.raises(InputError, match="0 runs are named 'version_2': version_0, version_1"):
        hparams_alone(tmp_path, "version_2", notes)
    names = ["--run", "version_0", "--run", "version_1"]
    assert main(["compare", str(tmp_path), str(tmp_path), *names, "--json"]) == 0
    (found,) = json.loads(capsys.readouterr().out)["comparisons"]
    assert found["config"] == {"batch_size": ["32", "64"]}
    assert main(["compare", str(tmp_path), str(tmp_path), "--json"]) == 2
    assert "choose one with --run" in capsys.readouterr().err
