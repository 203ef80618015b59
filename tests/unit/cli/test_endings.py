"""How a command ends where its output has no reader, or its input is senseless."""

from __future__ import annotations

import io
import json
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout
from pathlib import Path

import pytest

from ray_sentinel.cli.main import main
from ray_sentinel.cli.output import console
from ray_sentinel.errors import UnreachableError
from ray_sentinel.evidence.logs.lines.lines import Origin
from ray_sentinel.logs.follow import Shown, ViewLine


@contextmanager
def no_reader() -> Iterator[None]:
    """stdout is a pipe whose reader has gone."""
    reader, writer = os.pipe()
    os.close(reader)
    with open(writer, "w", encoding="utf-8") as stream, redirect_stdout(stream):
        yield
        with open(os.devnull, "wb") as nowhere:
            os.dup2(nowhere.fileno(), writer)  # what is left cannot be written when it is closed


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "driver.log").write_text("".join(f"line {n}\n" for n in range(60)))
    return tmp_path


@pytest.mark.parametrize("more", [[], ["--json"], ["--tail", "3"], ["--tail", "3", "--json"]])
def test_without_a_reader_nothing_is_wrong(folder: Path, more: list[str]) -> None:
    with no_reader():
        assert main(["logs", str(folder), *more]) == 0
        sys.stdout.write("still to come")
        sys.stdout.flush()  # as the interpreter does at its end


def test_an_error_is_an_error_without_a_reader() -> None:
    with no_reader():
        assert main(["status", "--url", "http://127.0.0.1:0", "--json"]) == 2


def test_our_console_ends_nothing() -> None:
    with no_reader(), pytest.raises(BrokenPipeError):
        console().print("text")


@pytest.mark.parametrize("url", ["http://[::1", "http://h:99999999", "ftp://h", "http://", "h:x"])
def test_a_senseless_url_is_wrong_usage(url: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["status", "--url", url, "--json"]) == 2
    assert url in json.loads(capsys.readouterr().out)["error"]


@pytest.mark.parametrize("command", ["diagnose", "compare"])
def test_a_senseless_source_is_wrong_usage(
    command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    sources = ["http://[::1"] * (2 if command == "compare" else 1)
    assert main([command, *sources, "--json"]) == 2
    assert "http://[::1" in json.loads(capsys.readouterr().out)["error"]


def test_an_answer_that_nobody_wanted_has_its_code_all_the_same(
    monkeypatch: pytest.MonkeyPatch, folder: Path
) -> None:
    monkeypatch.setattr(sys, "stdout", None)
    assert main(["logs", str(folder), "--json"]) == 0


def test_what_cannot_be_written_is_said(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], folder: Path
) -> None:
    with open("/dev/full", "w", encoding="utf-8") as full:
        monkeypatch.setattr(sys, "stdout", full)
        assert main(["logs", str(folder), "--json"]) == UnreachableError.exit_code
        full.flush()
    assert "No space left" in capsys.readouterr().err


@pytest.mark.parametrize(("tail", "count"), [("0", 0), ("7", 7)])
def test_as_many_lines_as_were_asked_for(
    folder: Path, tail: str, count: int, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["logs", str(folder), "--tail", tail, "--json"]) == 0
    assert len(json.loads(capsys.readouterr().out)) == count


@pytest.mark.parametrize("tail", ["-1", "x", "1.5"])
def test_no_number_of_lines_is_wrong_usage(folder: Path, tail: str) -> None:
    with pytest.raises(SystemExit, match="2"):
        main(["logs", str(folder), "--tail", tail])


def test_lines_that_are_followed_come_one_by_one(
    monkeypatch: pytest.MonkeyPatch, folder: Path
) -> None:
    raw = io.BytesIO()
    # As a pipe: what is not flushed stays inside.
    stream = io.TextIOWrapper(io.BufferedWriter(_Kept(raw), 1 << 20), encoding="utf-8")
    monkeypatch.setattr(sys, "stdout", stream)
    seen: list[bytes] = []

    def follow(*_: object, **__: object) -> Iterator[object]:
        seen.append(raw.getvalue())
        yield Shown("driver.log", ViewLine(text="new", origin=Origin()), None)
        seen.append(raw.getvalue())

    monkeypatch.setattr("ray_sentinel.logs.follow.follow", follow)
    assert main(["logs", str(folder), "--follow", "--tail", "2", "--json"]) == 0
    texts = [json.loads(line)["line"]["text"] for line in seen[1].splitlines()]
    assert (len(seen[0].splitlines()), texts) == (2, ["line 58", "line 59", "new"])


class _Kept(io.RawIOBase):
    def __init__(self, target: io.BytesIO) -> None:
        self._target = target

    def writable(self) -> bool:
        return True

    def write(self, data: object) -> int:
        return self._target.write(data)  # type: ignore[call-overload, no-any-return]
