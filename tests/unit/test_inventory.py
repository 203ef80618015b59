"""Every fact that older tools for the same work knew is answered, each by the product itself."""

from __future__ import annotations

import importlib
import pkgutil
from collections import Counter
from pathlib import Path

import pytest

from tests.support import inventory
from tests.support.inventory.row import Row

SUBJECTS: dict[str, list[Row]] = {
    info.name: module.ROWS
    for info in pkgutil.iter_modules(inventory.__path__)
    if hasattr(module := importlib.import_module(f"{inventory.__name__}.{info.name}"), "ROWS")
}
ROWS = {f"{subject}: {row.id}": row for subject, rows in SUBJECTS.items() for row in rows}
LEAST = {
    "collected_series": 72,
    "comparison": 22,
    "elastic_training": 101,
    "hanging_jobs": 38,
    "playbook_gpus": 20,
    "playbook_jobs": 61,
    "playbook_network": 22,
    "playbook_training": 56,
    "ray_jobs": 46,
    "time_series": 78,
    "training_monitor": 86,
}
"""Facts of each subject: none is lost."""
MOST_OTHERWISE = 5


@pytest.mark.parametrize("row", ROWS.values(), ids=ROWS.keys())
def test_a_fact_is_answered(row: Row, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAY_SENTINEL_LOG_DIR", str(tmp_path / "home"))
    row.check.run(tmp_path)


def test_the_inventory_is_whole() -> None:
    for subject, rows in SUBJECTS.items():
        assert not [name for name, n in Counter(row.id for row in rows).items() if n > 1]
        assert len(rows) >= LEAST[subject]
        assert all(row.fact and row.check.where for row in rows)
    assert set(LEAST) == set(SUBJECTS)


def test_little_is_done_otherwise() -> None:
    otherwise = [row for row in ROWS.values() if row.otherwise]
    assert len(otherwise) <= MOST_OTHERWISE
    assert all(len(row.otherwise) < 200 and "\n" not in row.otherwise for row in otherwise)
