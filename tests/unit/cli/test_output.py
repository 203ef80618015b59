"""JSON and words on any terminal: no control characters, whatever the encoding."""

from __future__ import annotations

import io
import json
import sys
from collections.abc import Callable

import pytest

from ray_sentinel.cli.output import escape_unencodable, print_error, print_json, print_json_line
from ray_sentinel.model.stacks import ChildWork

HOSTILE = "a\x1b[2J\x7f\x9b31m\u202ez → é 😀\t\n"


def written(monkeypatch: pytest.MonkeyPatch, encoding: str) -> io.BytesIO:
    raw = io.BytesIO()
    stream = io.TextIOWrapper(raw, encoding=encoding, write_through=True)
    escape_unencodable([stream])
    monkeypatch.setattr(sys, "stdout", stream)
    monkeypatch.setattr(sys, "stderr", stream)
    return raw


@pytest.mark.parametrize("encoding", ["utf-8", "ascii", "latin-1"])
@pytest.mark.parametrize("print_it", [print_json, print_json_line])
def test_json_is_the_same_to_a_reader_and_harmless_to_a_terminal(
    monkeypatch: pytest.MonkeyPatch, print_it: Callable[[object], None], encoding: str
) -> None:
    raw = written(monkeypatch, encoding)
    print_it({"said": HOSTILE})
    text = raw.getvalue().decode(encoding)
    assert json.loads(text) == {"said": HOSTILE}
    assert not set(text) & set("\x1b\x7f\x9b\u202e")
    assert ("→" in text) == (encoding == "utf-8")


def test_json_has_its_keys_in_order_also_where_they_are_numbers(
    capsys: pytest.CaptureFixture[str],
) -> None:
    print_json({"ran": {12: 1.5, 3: 2.0}, "at": "\udcff"})
    assert list(json.loads(capsys.readouterr().out)["ran"]) == ["12", "3"]
    print_json(ChildWork(at=1.0, ran={12: 1.5, 3: 2.0}))
    shown = json.loads(capsys.readouterr().out)
    assert shown == {"ages": {}, "at": 1.0, "ran": {"12": 1.5, "3": 2.0}}
    assert list(shown["ran"]) == ["12", "3"]


def test_an_error_is_told_also_where_its_characters_are_not_known(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    raw = written(monkeypatch, "ascii")
    print_error("no file “a” \udcff")
    assert raw.getvalue() == b"ray-sentinel: no file \\u201ca\\u201d \\udcff\n"


def test_a_stream_has_one_document_a_line(capsys: pytest.CaptureFixture[str]) -> None:
    for number in (1, 2):
        print_json_line({"said": "a\nb", "number": number})
    lines = capsys.readouterr().out.splitlines()
    assert [json.loads(line)["number"] for line in lines] == [1, 2]
