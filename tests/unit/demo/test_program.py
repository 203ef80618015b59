"""The training programs of the fault suite: made-up names only, and the same for the same seed."""

from __future__ import annotations

import ast
import json
import re
from pathlib import Path

import pytest

from ray_sentinel.demo.catalogue import ALL, FAULTS, HEALTHY, LAYOUTS
from ray_sentinel.demo.plan import draw
from ray_sentinel.demo.program import MadeUpNames, write_scripts
from ray_sentinel.errors import UsageError
from ray_sentinel.evidence.stacks.frames.reading import match
from ray_sentinel.model.stacks import Frame


@pytest.mark.parametrize("attach", ["", "attach", "step"])
def test_a_program_is_python_without_any_of_our_names(attach: str, tmp_path: Path) -> None:
    plan = draw("sleep", seed=5, attach=attach)  # type: ignore[arg-type]
    write_scripts(tmp_path, plan)
    scripts = json.loads((tmp_path / "plan.json").read_text())["scripts"]
    for file in scripts.values():
        text = (tmp_path / file).read_text()
        ast.parse(text)
        assert not re.search(r"\bx_", text)
    report = (tmp_path / scripts["x_report"]).read_text()
    assert ("ray_sentinel.attach()" in report) == bool(attach)


def test_no_table_knows_a_function_of_the_programs(tmp_path: Path) -> None:
    write_scripts(tmp_path, draw("skip", seed=8))
    frames = [
        Frame(node.name, file.name, node.lineno)
        for file in tmp_path.glob("*.py")
        for node in ast.walk(ast.parse(file.read_text()))
        if isinstance(node, ast.FunctionDef) and node.name not in ("report", "declared")
    ]
    assert frames
    assert [frame for frame in frames if match(frame) is not None] == []


def test_other_seeds_give_other_names(tmp_path: Path) -> None:
    names: list[list[str]] = []
    for seed in (1, 2, 1):
        folder = tmp_path / str(len(names))
        folder.mkdir()
        write_scripts(folder, draw("gil", seed=seed))
        names.append(sorted(path.name for path in folder.glob("*.py")))
    assert names[0] == names[2]
    assert not set(names[0]) & set(names[1])


def test_a_word_is_never_given_twice() -> None:
    import random

    words = MadeUpNames(random.Random(3))
    given = [words.of(f"x_{number}") for number in range(300)]
    assert len(set(given)) == 300
    assert words.of("x_7") == given[7]


@pytest.mark.parametrize("fault", sorted(ALL))
def test_a_plan_is_the_same_for_the_same_seed_and_fits_its_row(fault: str) -> None:
    for seed in range(20):
        plan = draw(fault, seed=seed)
        assert plan == draw(fault, seed=seed)
        assert len(plan.how) == len(ALL[fault].ways)
        assert all(0 <= rank < plan.world for rank in plan.ranks)
        assert plan.layout in LAYOUTS
        assert plan.layout not in ("tensor", "pipeline") or plan.world % 2 == 0
        assert (plan.steps > 1000) == (fault in FAULTS and not fault.startswith("end"))


def test_what_does_not_exist_is_refused() -> None:
    with pytest.raises(UsageError, match=r"no fault sleepy; did you mean sleep\? "):
        draw("sleepy")
    with pytest.raises(UsageError, match="no fault nope; there are the faults ") as refused:
        draw("nope")
    faults, healthy = str(refused.value).split("healthy controls ")
    assert set(re.findall(r"[\w-]+", faults)) >= set(FAULTS)
    assert healthy.split(", ") == list(HEALTHY)
    with pytest.raises(UsageError, match="no rank 99"):
        draw("sleep", rank=99)
