"""The one table of limits: each row is read, and each counts what it says."""

from __future__ import annotations

from pathlib import Path

import pytest

from ray_sentinel import regex as re
from ray_sentinel.model import thresholds
from ray_sentinel.model.thresholds import TABLE

ROOT = Path(__file__).parents[3]
DESCRIPTIONS = ROOT / "docs" / "dashboards"


def readers() -> str:
    """The text of all that may read a row: the package, and what alerts and panels are made of."""
    own = Path(thresholds.__file__)
    code = [path for path in (ROOT / "ray_sentinel").rglob("*.py") if path != own]
    return "\n".join(path.read_text() for path in (*code, *DESCRIPTIONS.glob("*.yml")))


def test_every_row_is_read() -> None:
    """A limit that nobody reads says nothing of what the product does."""
    read = set(re.findall(r"\b[A-Z_]+\b|<[a-z_]+\.", readers()))
    assert [name for name in TABLE if not {name.upper(), f"<{name}."} & read] == []


@pytest.mark.parametrize("name", TABLE)
def test_a_value_beyond_the_limit_crosses_it_and_one_before_does_not(name: str) -> None:
    row = TABLE[name]
    beyond, before = 1.1 * row.limit, 0.9 * row.limit
    if row.comparison == "<":
        beyond, before = before, beyond
    assert row.crossed(beyond)
    assert not row.crossed(before)
    assert row.crossed(row.limit) is (row.comparison == ">=")
    assert not row.crossed(float("nan"))
