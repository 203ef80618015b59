"""Parameters that frameworks write to event files as texts."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from ray_sentinel.cli.main import main
from ray_sentinel.diagnose.logs import LogFacts
from ray_sentinel.store.event_files.config import MAX_VALUE, parameters
from ray_sentinel.store.event_files.source import find_event_files, load_events, with_config
from tests.support.parts import require_module


def written(folder: Path, texts: dict[str, str], steps: int = 60) -> Path:
    tensorboard = require_module("torch.utils.tensorboard", "torch tensorboard")
    writer = tensorboard.SummaryWriter(str(folder))
    for tag, text in texts.items():
        writer.add_text(tag, text, 0, walltime=1e9)
    for step in range(steps):
        writer.add_scalar("learning/loss", 2.0, step, walltime=1e9 + 10 * step)
    writer.close()
    return folder


@pytest.mark.parametrize(
    ("tag", "text"),
    [
        ("args/text_summary", "no object"),
        ("args/text_summary", "[1]"),
        ("args", '{"a": \ud800'),
        ("samples/0 of 5", "x"),
        ("prose", "two\nlines"),
        ("long", "x" * (MAX_VALUE + 1)),
    ],
)
def test_other_texts_are_no_parameters(tag: str, text: str) -> None:
    assert parameters(tag, text) == {}


def test_parameters_are_read_from_texts(tmp_path: Path) -> None:
    arguments = {"max_steps": 500, "learning_rate": 0.1, "fsdp": [], "hub_token": None}
    written(tmp_path, {"args": json.dumps(arguments, indent=2), "steps": "900"})
    source = load_events(find_event_files(tmp_path))
    assert source.config == {"max_steps": "500", "learning_rate": "0.1", "steps": "900"}
    assert source.families() == ("tb_learning_loss", "tb_step")
    logs = with_config(LogFacts(config={"max_steps": "400"}), source)
    assert logs.config["learning_rate"] == "0.1"
    assert logs.planned_steps == 400.0


def test_a_job_of_event_files_that_ended_early(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    written(tmp_path, {"steps": "900"})
    assert main(["diagnose", str(tmp_path), "--json"]) == 1
    found = json.loads(capsys.readouterr().out)
    assert (found["outcome"], found["cause"], found["culprits"]) == ("unknown", "ended-early", [])
    assert "step 59 of 900" in found["root_cause"]


def test_configurations_are_compared(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    first = written(tmp_path / "a", {"lr": "0.1", "seed": "1"})
    second = written(tmp_path / "b", {"lr": "0.2", "seed": "1"})
    assert main(["compare", str(first), str(second), "--json"]) == 0
    (found,) = json.loads(capsys.readouterr().out)["comparisons"]
    assert found["config"] == {"lr": ["0.1", "0.2"]}
