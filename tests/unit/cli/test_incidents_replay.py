"""``incidents replay``: an ID, a log_dir, a folder of events or an incident's folder."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from ray_sentinel.actors.bundles import bundle
from ray_sentinel.actors.coordinator.event_log.log import EventLog
from ray_sentinel.actors.coordinator.event_log.replay import RecordedLog
from ray_sentinel.cli.main import main
from tests.support.ray_stories.processes import asleep

EVENTS = Path(__file__).parents[2] / "fixtures/events"


@pytest.fixture
def log_dir(tmp_path: Path) -> Path:
    """Of two deployments, each with an incident 0001, and one's folder."""
    shutil.copytree(EVENTS / "before_told", tmp_path / "events/first")
    shutil.copytree(EVENTS / "before_states/resolved", tmp_path / "events/second")
    (told,) = RecordedLog(tmp_path / "events/first").reported
    bundle.create(tmp_path / "incidents", msgspec.structs.replace(told, clock_shift=0.0), "first")
    return tmp_path


def test_a_log_dir_is_judged_whole(log_dir: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["incidents", "replay", str(log_dir), "--json"]) == 1
    found = json.loads(capsys.readouterr().out)
    assert [len(log["incidents"]) for log in found["logs"]] == [1, 1]
    assert not found["same"]
    first, second = (log["incidents"][0] for log in found["logs"])
    assert first["same"]
    assert second["differs"] == ["sentence"]
    assert first["then"]["culprits"] == first["now"]["culprits"]


def test_a_number_that_was_fitted_anew_is_said_to_be_that(
    log_dir: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["incidents", "replay", str(log_dir / "events/first")]) == 0
    out = capsys.readouterr().out
    assert "incident 0001 of job: the same" in out
    assert "confidence then: 68 %\n" in out
    assert ", on the same evidence: how often that is right was fitted anew" in out


def test_an_incidents_folder_finds_its_deployments_events(
    log_dir: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder,) = (log_dir / "incidents").iterdir()
    assert main(["incidents", "replay", str(folder)]) == 0
    out = capsys.readouterr().out
    assert "incident 0001 of job: the same" in out
    assert "second" not in out


def test_why_shows_what_was_weighed_when_it_was_told(
    log_dir: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = str(log_dir / "events/first")
    assert main(["incidents", "replay", folder, "--why", "--json"]) == 0
    (incident,) = json.loads(capsys.readouterr().out)["logs"][0]["incidents"]
    named = {one["rank"] for one in incident["now"]["culprits"]}
    ranks = incident["why"]["ranks"]
    assert {rank for group in ranks if group["is_named"] for rank in group["ranks"]} == named
    assert all(group["score"] < incident["why"]["named_from"] for group in ranks[len(named) :])
    assert main(["incidents", "replay", folder, "--why"]) == 0
    assert "What was weighed" in capsys.readouterr().out


def test_of_a_job_of_actors_why_is_its_chain(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    written = EventLog(tmp_path)
    for event in asleep().log:
        written.append(event)
    written.close()
    main(["incidents", "replay", str(tmp_path), "--why"])
    assert "ray: driver waits" in capsys.readouterr().out


def test_a_folder_whose_deployment_is_not_there_asks_for_it(
    log_dir: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder,) = (log_dir / "incidents").iterdir()
    (log_dir / "events/first").rename(log_dir / "events/third")
    assert main(["incidents", "replay", str(folder)]) == 2
    assert "made by the deployment first" in capsys.readouterr().err
    where = str(log_dir / "events/third")
    assert main(["incidents", "replay", str(folder), "--from", where]) == 0


def test_an_id_is_looked_for_in_the_log_dir(
    log_dir: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RAY_SENTINEL_LOG_DIR", str(log_dir))
    assert main(["incidents", "replay", "1"]) == 1
    assert capsys.readouterr().out.count("incident 0001 of job") == 2
    assert main(["incidents", "replay", "0009"]) == 2
    assert "known: 0001" in capsys.readouterr().err


def test_what_is_neither_a_folder_nor_an_id_is_named_and_not_only_the_log_dir(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("RAY_SENTINEL_LOG_DIR", str(tmp_path / "logs"))
    assert main(["incidents", "replay", "copy"]) == 2
    said = capsys.readouterr().err
    assert "copy: there is no such folder, and no log_dir" in said
    assert str(tmp_path / "logs") in said
    (tmp_path / "copy").touch()
    assert main(["incidents", "replay", "copy"]) == 2
    assert "copy: is a file" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("line", "said"),
    [
        (["replay"], "replay ID, or replay DIR"),
        (["replay", "{}/nowhere"], "there is no such file or folder"),
        (["replay", "{}/incidents"], "holds no event log"),
        (["replay", "1", "--from", "{}/incidents"], "holds no event log"),
        (["list", "--from", "{}"], "--from is for replay"),
        (["list", "--why"], "--why is for replay"),
    ],
)
def test_wrong_usage_is_told(
    line: list[str], said: str, log_dir: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["incidents", *(word.format(log_dir) for word in line)]) == 2
    assert said in capsys.readouterr().err


def test_it_needs_no_ray(log_dir: Path) -> None:
    program = (
        "import sys; sys.modules['ray'] = None\n"
        "from ray_sentinel.cli.main import main\n"
        f"sys.exit(main(['incidents', 'replay', {str(log_dir / 'events/first')!r}]))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
