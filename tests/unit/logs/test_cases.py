"""Short logs are understood: class, first culprit, and nobody where the lines do not tell."""

from __future__ import annotations

import importlib
import pkgutil
from pathlib import Path

import pytest

from ray_sentinel.logs.catalogue import load_catalogue
from ray_sentinel.logs.triage import triage_path
from tests.support import log_cases
from tests.support.log_cases.parts import ANYBODY, NOBODY, Case

CASES = {
    f"{name}: {about}": case
    for _, name, _ in pkgutil.iter_modules(log_cases.__path__)
    if name != "parts"
    for about, case in importlib.import_module(f"{log_cases.__name__}.{name}").CASES.items()
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
def test_case(case: Case, tmp_path: Path) -> None:
    files = {"job.log": case.files} if isinstance(case.files, str) else case.files
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text, encoding="utf-8")
    answer = triage_path(tmp_path, load_catalogue(), now=0.0)
    assert answer.kind == case.kind
    if case.culprit == NOBODY:
        assert answer.culprits == ()
    elif case.culprit != ANYBODY:
        assert isinstance(case.culprit, dict)
        first = answer.culprits[0]
        assert {key: getattr(first, key) for key in case.culprit} == case.culprit
