"""docs/metrics.md names every series that is served under a fixed name."""

from __future__ import annotations

import re
from itertools import product
from pathlib import Path

from tests.support.series_names import metric_names

DOCS = Path(__file__).parents[2] / "docs"


def documented() -> set[str]:
    """The names in the tables; ``a_{b,c}_d`` is two, and ``a_b{label}`` is ``a_b``."""
    text = "".join((DOCS / name).read_text() for name in ("metrics.md", "tensorboard.md"))
    found = set()
    for word in re.findall(r"`([a-z][^`\s]*)`", text):
        parts = re.split(r"\{([^}]*)\}", word)
        choices = [
            [*part.split(","), ""] if index % 2 else [part] for index, part in enumerate(parts)
        ]
        found |= {"".join(chosen) for chosen in product(*choices)}
    return found


def test_every_series_is_documented() -> None:
    names = metric_names()
    assert len(names) > 100
    known = documented()
    whole = tuple(name.removesuffix("*") for name in known if name.endswith("_*"))
    assert sorted(name for name in names - known if not name.startswith(whole)) == []
