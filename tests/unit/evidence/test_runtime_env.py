"""What Ray's texts say of runtime environments."""

from __future__ import annotations

from datetime import datetime

import pytest

from ray_sentinel.evidence.node.runtime_env import described, last_word, open_builds


@pytest.mark.parametrize(
    ("serialized", "what"),
    [
        ('{"pip": {"packages": ["a", "b", "c", "d", "e"]}}', "pip: a, b, c, 2 more"),
        ('{"uv": ["a"], "conda": {"dependencies": ["x", {"pip": ["y"]}]}}', "uv: a; conda: x, "),
        ('{"conda": {"name": "base"}}', "conda: a specification"),
        ('{"working_dir": "https://me:secret@host/code.zip?sig=abc"}', "working_dir: code.zip"),
        ('{"image_uri": "registry.io/team/train:3"}', "image_uri: train:3"),
        ('{"env_vars": {"TOKEN": "abc"}, "own": {"key": "abc"}, "_ray_commit": "1"}', "own"),
        ('{"pip": 3}', "pip: packages"),
        ("[1]", ""),
        ("{", ""),
        ('{"pip": ' + "[" * 100_000, ""),
    ],
)
def test_what_is_built_and_no_secret(serialized: str, what: str) -> None:
    assert described(serialized).startswith(what)
    assert "secret" not in described(serialized)
    assert "abc" not in described(serialized)
    assert described(serialized) or not what


def logged(*messages: str) -> str:
    head = "2026-11-26 09:51:54,743\tINFO runtime_env_agent.py:543 -- "
    return "".join(f"{head}{message}\n" for message in messages)


def begun(text: str) -> str:
    return f"Creating runtime env: {text} with timeout 600 seconds."


def test_what_was_begun_and_not_ended() -> None:
    one, other, last = (f'{{"pip": ["{name}"]}}' for name in ("a", "b", "with timeout c"))
    found = open_builds(
        "cut line\n"
        + logged(
            begun(one),
            begun(other),
            begun(last),
            f"Successfully created runtime env: {one}, context: {{}}",
            f"Failed to create runtime env {other}.",
            "runtime_env creation failed 3 times, giving up.",
        )
    )
    assert found == {last: datetime(2026, 11, 26, 9, 51, 54, 743_000)}  # noqa: DTZ001


def test_an_attempt_that_failed_is_followed_by_another() -> None:
    one = '{"pip": ["a"]}'
    assert one in open_builds(logged(begun(one), f"Failed to create runtime env {one}."))


def test_the_last_word_is_without_its_time_and_masked() -> None:
    assert last_word(logged("one", "Get token=hf_abcdefghijklmnopqrstuvwx")) == "Get token=***"
    assert last_word(logged("one") + "  of several lines -- here\n\n") == "of several lines -- here"
    assert last_word("") == ""
