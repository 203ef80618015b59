"""``inspect`` finds the node that is meant; both commands look at this node without a cluster."""

from __future__ import annotations

import html
import json
from pathlib import Path

import pytest

from ray_sentinel.cli.commands.inspect import choose
from ray_sentinel.cli.main import main
from ray_sentinel.errors import UsageError
from ray_sentinel.model.status import NodeStatus, Status, Unwatched

STATUS = Status(
    state="healthy",
    verdict="",
    nodes=(
        NodeStatus(id="abcdef01", host="gpu-1", address="10.0.0.1"),
        NodeStatus(id="abcdef02", host="gpu-2", address="10.0.0.2"),
    ),
    unwatched=(Unwatched(id="99", host="gpu-3", reason="msgspec is missing"),),
)


@pytest.mark.parametrize("name", ["gpu-2", "10.0.0.2", "abcdef02"])
def test_a_node_by_each_of_its_names(name: str) -> None:
    assert choose(STATUS, name).id == "abcdef02"


@pytest.mark.parametrize(
    ("name", "why"),
    [("abcdef0", "ambiguous"), ("gpu-3", "msgspec is missing"), ("gpu-9", "gpu-1, gpu-2")],
)
def test_no_single_node(name: str, why: str) -> None:
    with pytest.raises(UsageError, match=why):
        choose(STATUS, name)


@pytest.mark.parametrize("arguments", [["health", "--local"], ["inspect"]])
def test_this_node_without_a_cluster(
    arguments: list[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    (tmp_path / "ray" / "session_latest" / "logs").mkdir(parents=True)
    monkeypatch.setenv("RAY_TMPDIR", str(tmp_path))
    code = main([*arguments, "--json"])
    told = json.loads(capsys.readouterr().out)
    if "healthy" in told:
        assert code == (0 if told["healthy"] else 1)
        assert told["ray"] is None
        told = told["nodes"][0]
    assert code in (0, 1)
    assert told["versions"]["kernel"]
    assert told["errors"] == []


def test_health_and_triage_are_written_as_pages(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "ray" / "session_latest" / "logs").mkdir(parents=True)
    monkeypatch.setenv("RAY_TMPDIR", str(tmp_path))
    health, triage, log = tmp_path / "h.html", tmp_path / "t.html", tmp_path / "job.log"
    log.write_text("step 1: loss 2.0\nstep 2: loss 1.9\nValueError: <b>boom</b>\n")
    assert main(["health", "--local", "--json", "--report", str(health)]) in (0, 1)
    assert json.loads(capsys.readouterr().out)["verdict"] in html.unescape(health.read_text())
    assert main(["triage", str(log), "--json", "--report", str(triage)]) == 1
    assert json.loads(capsys.readouterr().out)["summary"] in html.unescape(triage.read_text())
    assert "<b>boom" not in triage.read_text()


def test_a_page_that_cannot_be_written_is_said(tmp_path: Path) -> None:
    log = tmp_path / "job.log"
    log.write_text("step 1: loss 2.0\n")
    assert main(["triage", str(log), "--report", str(tmp_path / "no" / "t.html")]) == 2


def test_checkpoints_that_cannot_be_listed_are_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["health", "--local", "--json", "--checkpoints", str(tmp_path / "no")]) == 2
    assert "no" in json.loads(capsys.readouterr().out)["error"]
