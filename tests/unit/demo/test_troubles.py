"""What a rank of the demo does to itself stops the others, wherever it is drawn."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

import ray_sentinel.demo

SCRIPTS = Path(ray_sentinel.demo.__file__).parent / "scripts"


@pytest.fixture
def troubles(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(SCRIPTS))
    spec = importlib.util.spec_from_file_location("troubles", SCRIPTS / "x_troubles.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize(
    ("variant", "after"), [(0, "bacde"), (1, "acbde"), (2, "abced"), (3, "abced"), (4, "bacde")]
)
def test_calls_of_other_ranks_do_not_change_places(
    troubles: ModuleType,
    variant: int,
    after: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    plan = {"how": {"0": "order"}, "step": 7, "variant": variant, "first_call": 0}
    trouble = troubles.x_Trouble(plan, 0)
    assert trouble.x_change(6, list("abcde"), (2,)) == list("abcde")
    assert trouble.x_change(7, list("abcde"), (2,)) == list(after)
