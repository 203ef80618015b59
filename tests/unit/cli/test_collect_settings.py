"""Settings of ``collect NAME --set``: relative places are those of the caller."""

from __future__ import annotations

from pathlib import Path

import pytest

from ray_sentinel.cli.main import main
from tests.support.event_files import event, framed


@pytest.mark.parametrize("place", ["tb", "./tb", "../{name}/tb"])
def test_a_relative_folder_is_where_the_caller_stands(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
    place: str,
) -> None:
    (tmp_path / "tb").mkdir()
    (tmp_path / "tb" / "events.out.tfevents.1.a").write_bytes(framed(event(7)))
    monkeypatch.chdir(tmp_path)
    folder = place.format(name=tmp_path.name)
    assert main(["collect", "tensorboard", "--set", f"folder={folder}"]) == 0
    assert " 7.0\n" in capfd.readouterr().out


@pytest.mark.parametrize(
    ("table", "key", "meant"),
    [
        ("mountz = ['/']", "mountz", "did you mean mounts?"),
        ("intervall = 3", "intervall", "did you mean interval?"),
        ("colour = 3", "colour", "known here: mount_deadline, mounts, enabled, interval, deadline"),
        ("mounts = '/'", "mounts", "Expected `array`"),
        ("mount_deadline = -1", "mount_deadline", "> 0"),
        ("mount_deadline = nan", "mount_deadline", "> 0"),
        ("interval = 'often'", "interval", "Expected `float"),
    ],
)
def test_a_wrong_setting_is_wrong_usage_and_says_where_it_stands(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], table: str, key: str, meant: str
) -> None:
    file = tmp_path / "sentinel.toml"
    file.write_text(f"[collectors.host]\n{table}\n")
    assert main(["collect", "host", "--proc", str(tmp_path), "--config", str(file)]) == 2
    said = capfd.readouterr().err
    assert f"{file}: [collectors.host]: " in said
    assert key in said
    assert meant in said


def test_a_wrong_setting_of_the_line_or_of_a_variable_is_not_put_on_the_file(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "sentinel.toml"
    file.write_text("[collectors.host]\nmount_deadline = 1.0\n")
    line = ["collect", "host", "--proc", str(tmp_path), "--config", str(file)]
    assert main([*line, "--set", "mount_deadline=-1"]) == 2
    assert "--set mount_deadline: [collectors.host]" in capfd.readouterr().err
    monkeypatch.setenv("RAY_SENTINEL_COLLECTORS__HOST__MOUNT_DEADLINE", "-1")
    assert main(line) == 2
    variable = "RAY_SENTINEL_COLLECTORS__HOST__MOUNT_DEADLINE: [collectors.host]"
    assert variable in capfd.readouterr().err


def test_a_pattern_that_is_none_is_a_wrong_setting(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "sentinel.toml"
    file.write_text("[collectors.train_logs]\npatterns = ['(']\n")
    assert main(["collect", "train_logs", "--config", str(file)]) == 2
    assert f"{file}: [collectors.train_logs]: patterns: '('" in capfd.readouterr().err


def test_with_all_the_others_are_printed(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "loadavg").write_text("0.5 0.4 0.3 1/200 4711\n")
    file = tmp_path / "sentinel.toml"
    file.write_text("[collectors.train_logs]\npatternz = []\n")
    assert main(["collect", "--all", "--proc", str(tmp_path), "--config", str(file)]) == 2
    told = capfd.readouterr()
    assert f"train_logs: {file}: [collectors.train_logs]: unknown key patternz" in told.err
    assert "hw_load1" in told.out


@pytest.mark.parametrize("deadline", ["nan", "inf", "0", "-1"])
def test_a_deadline_is_a_number_above_nothing(
    capfd: pytest.CaptureFixture[str], deadline: str
) -> None:
    assert main(["collect", "host", f"--deadline={deadline}"]) == 2
    assert "--deadline must be" in capfd.readouterr().err
