"""Which versions are asked, and that the reason is said."""

from __future__ import annotations

import pytest

from ray_sentinel.evidence.nccl_ras.version import gate, parse


@pytest.mark.parametrize(
    ("text", "asked", "word"),
    [
        ("2.23.4", False, "no RAS"),
        ("2.26.2+cuda12.4", False, "crash"),
        ("2.27.7", False, "crash"),
        ("2.28.9", False, "crash"),
        ("2.29.2", True, "can be asked"),
        ("2.31.2+cuda13.3", True, "can be asked"),
        ("", False, "unknown version"),
        ("next", False, "unknown version"),
    ],
)
def test_by_default(text: str, asked: bool, word: str) -> None:
    found = gate(text)
    assert found.ask is asked
    assert word in found.reason


def test_the_setting_decides() -> None:
    assert gate("2.27.3", "always").ask
    assert not gate("2.27.3", "always").json
    assert gate("2.28.7", "always").json
    assert not gate("2.30.1", "never").ask
    assert not gate("2.20.5", "always").ask


def test_versions_are_read() -> None:
    assert parse("2.27.3+cuda12.9") == (2, 27, 3)
    assert parse("2.27") == (2, 27, 0)
    assert parse("dev") is None
