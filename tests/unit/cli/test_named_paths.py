"""``triage`` and ``diagnose`` on what is not there, is empty, or is garbage: no traceback."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from ray_sentinel.cli.main import main
from ray_sentinel.cli.named_paths import exit_code, is_folder
from ray_sentinel.errors import InputError
from tests.support.bad_paths import EACH, bad

NOBODY = 65_534


@pytest.mark.parametrize("command", ["triage", "diagnose"])
@pytest.mark.parametrize(
    "what",
    [*EACH, "folder of garbage"],
)
def test_what_holds_nothing_is_wrong_usage(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], command: str, what: str
) -> None:
    path = bad(tmp_path, what, "job.log")
    assert main([command, path]) == 2
    assert path in capsys.readouterr().err


def test_a_file_is_no_folder_and_what_is_not_there_is_neither(tmp_path: Path) -> None:
    assert is_folder(str(tmp_path))
    (tmp_path / "file").touch()
    assert not is_folder(str(tmp_path / "file"))
    with pytest.raises(InputError, match="there is no such file or folder"):
        is_folder(str(tmp_path / "other"))


def test_a_folder_that_may_not_be_listed_is_not_an_empty_one(tmp_path: Path) -> None:
    closed = tmp_path / "closed"
    closed.mkdir(mode=0)
    me = os.geteuid()
    os.seteuid(me or NOBODY)  # root may list everything
    try:
        with pytest.raises(InputError, match="Permission denied"):
            is_folder(str(closed))
    finally:
        os.seteuid(me)


def test_what_was_found_goes_before_what_could_not_be_read(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert [exit_code(0, []), exit_code(1, []), exit_code(0, ["a"]), exit_code(1, ["b"])] == [
        0,
        1,
        2,
        1,
    ]
    assert capsys.readouterr().err == "ray-sentinel: a\nray-sentinel: b\n"


def test_a_full_disk_is_told_without_a_traceback(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> int:
        raise OSError(28, "No space left on device", "/somewhere/report.md")

    monkeypatch.setattr("ray_sentinel.cli.explainers.stacks.run", full)
    assert main(["explain", "stacks", "x"]) == 3
    assert capsys.readouterr().err == (
        "ray-sentinel: /somewhere/report.md: No space left on device\n"
    )


@pytest.mark.parametrize(
    "words", [["triage", ""], ["diagnose", "", "--json"], ["explain", "stacks", ""]]
)
def test_an_empty_argument_is_refused(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(words) == 2
    said = capsys.readouterr()
    assert "an argument is empty" in said.out + said.err
