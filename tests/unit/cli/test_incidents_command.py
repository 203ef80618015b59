"""``ray-sentinel incidents`` as people read it: the list, one in full, and what they type short."""

from __future__ import annotations

import json
from collections.abc import Iterator

import msgspec
import pytest

from ray_sentinel.cli.main import main
from ray_sentinel.model.identity import ProcessId
from ray_sentinel.model.stacks import ChildWork, StackFact
from ray_sentinel.web.page import Page
from ray_sentinel.web.routes import PageSource
from tests.support.page_data import incident, incident_of_actors, status


@pytest.fixture
def link() -> Iterator[str]:
    over = msgspec.structs.replace(incident(number="0003"), state="resolved")
    waits = StackFact(process=ProcessId("node-1", 72), children=ChildWork(1.0, {7912: 0.02}))
    actors = incident_of_actors()
    assert actors.verdict is not None
    verdict = msgspec.structs.replace(actors.verdict, stacks=(waits,))
    actors = msgspec.structs.replace(actors, verdict=verdict)
    page = Page(PageSource(status, lambda: (incident(), actors, over)), port=0)
    try:
        yield page.link
    finally:
        page.close()


def said(capsys: pytest.CaptureFixture[str], *words: str) -> list[str]:
    assert main(["incidents", *words]) == 1
    return [line.rstrip() for line in capsys.readouterr().out.splitlines()]


def test_the_list_says_when_in_utc_whether_it_goes_on_and_how_to_read_on(
    link: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("TZ", "America/New_York")
    monkeypatch.setenv("COLUMNS", "80")
    lines = said(capsys, "--url", link)
    assert lines[0].split() == ["id", "when", "(UTC)", "job", "state", "what"]
    first, last = (next(x for x in lines if x.startswith(one)) for one in ("0001", "0003"))
    assert "2027-01-15 07:59:48  llama" in first
    assert "going on" in first
    assert "over" in last
    assert lines[-1] == "in full: ray-sentinel incidents show 0002"
    assert max(map(len, lines)) <= 80


def test_an_id_alone_shows_the_incident_with_its_files(
    link: str, capsys: pytest.CaptureFixture[str]
) -> None:
    long = said(capsys, "show", "0001", "--url", link)
    assert said(capsys, "0001", "--url", link) == long
    assert " • State: going on, evidence saved" in long
    assert long[-1] == "files: /data/llama/incidents/x-0001"


def test_json_tells_how_long_the_children_of_an_actor_ran(
    link: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["incidents", "--json", "--url", link]) == 1
    told = json.loads(capsys.readouterr().out)
    facts = [fact for one in told for fact in one["verdict"]["stacks"] if fact["children"]]
    assert [fact["children"]["ran"] for fact in facts] == [{"7912": 0.02}]


def test_what_is_no_id_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["incidents", "sho"])
    assert ended.value.code == 2
    assert "'list', 'show', 'replay'" in capsys.readouterr().err


def test_diagnose_without_a_source_says_what_to_name(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("RAY_SENTINEL_LOG_DIR", "/nowhere/llama")
    assert main(["diagnose"]) == 2
    told = capsys.readouterr().err
    assert "there is no log folder /nowhere/llama on this machine; name the job's folder" in told
    assert "ray-sentinel diagnose SOURCE" in told
