"""Text from outside, read as what it should be."""

from __future__ import annotations

import pytest

from ray_sentinel.text import port_number


@pytest.mark.parametrize(
    ("text", "port"),
    [
        ("1", 1),
        ("29500", 29500),
        ("065535", 65535),
        ("65536", None),
        ("0", None),
        ("-1", None),
        (" 80", None),
        ("8_0", None),
        ("", None),
        ("\u00b2", None),  # isdigit(), and no int()
        ("\u0661", None),
        ("9" * 5000, None),  # more digits than int() takes
    ],
)
def test_what_is_a_port(text: str, port: int | None) -> None:
    assert port_number(text) == port
