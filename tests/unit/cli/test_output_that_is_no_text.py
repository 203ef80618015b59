"""JSON and errors where a name is no UTF-8, and where a stream was closed before we started."""

from __future__ import annotations

import json
import os
import sys

import pytest

from ray_sentinel.cli.output import print_error, print_json


def test_a_name_that_is_no_text_comes_back_from_json(capsys: pytest.CaptureFixture[str]) -> None:
    name = os.fsdecode(b"/c/\xff/step_7")
    print_json({"b": [name], "a": "é"})
    shown = capsys.readouterr().out
    assert list(json.loads(shown)) == ["a", "b"]
    assert os.fsencode(json.loads(shown)["b"][0]) == b"/c/\xff/step_7"


def test_streams_that_were_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdout", None)
    monkeypatch.setattr(sys, "stderr", None)
    print_error("nobody sees this", as_json=True)
