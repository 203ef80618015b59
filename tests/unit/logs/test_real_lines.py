# ruff: noqa: E501 - log lines are as long as they are
"""What real jobs printed is understood: class, first culprit, and nobody where lines do not tell."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from ray_sentinel.logs.catalogue import load_catalogue
from ray_sentinel.logs.triage import triage_path

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

FIXTURES = Path(__file__).parents[2] / "fixtures" / "logs"
CASES = [
    case
    for name in sorted(path.name for path in FIXTURES.glob("real_lines*.toml"))
    for case in tomllib.loads((FIXTURES / name).read_text(encoding="utf-8"))["case"]
]


@pytest.mark.parametrize("case", CASES, ids=[case["source"] for case in CASES])
def test_real_lines(case: dict[str, Any], tmp_path: Path) -> None:
    log = tmp_path / "job.log"
    log.write_text(case["text"].lstrip("\n"), encoding="utf-8")
    answer = triage_path(log, load_catalogue(), now=0.0)
    assert answer.kind == case["class"]
    if case.get("nobody"):
        assert answer.culprits == ()
    for key in ("rank", "pid", "ip", "node"):
        if key in case:
            assert getattr(answer.culprits[0], key) == case[key]
    assert answer.evidence
    for line in answer.evidence:
        assert line.line is not None
        assert 1 <= line.line <= case["text"].count("\n") + 1
