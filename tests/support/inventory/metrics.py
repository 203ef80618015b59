"""Facts about series: their names, kinds and labels are those that are served and documented."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path

from tests.support.inventory.row import Check
from tests.support.series_names import catalogue

DOCS = Path(__file__).parents[3] / "docs"


@lru_cache(maxsize=1)
def _documents() -> str:
    return "".join((DOCS / name).read_text() for name in ("metrics.md", "tensorboard.md"))


def served(name: str, kind: str, *labels: str) -> Check:
    """A series of ours, of that kind and with these labels (``host`` is on all)."""

    def run(folder: Path) -> None:
        metric = catalogue()[name]
        assert metric.kind == kind
        assert set(labels) - {"host"} <= set(metric.labels), metric.labels
        assert f"{name}_x" not in catalogue()

    return Check(f"series: {name}", run)
