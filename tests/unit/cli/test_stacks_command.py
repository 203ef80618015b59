"""What ``ray-sentinel stacks`` prints of what was seen, for people and for programs."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator

import msgspec
import pytest

from ray_sentinel.actors.coordinator.gathering import job_stacks
from ray_sentinel.actors.deployment import cluster
from ray_sentinel.cli.main import main
from ray_sentinel.model.identity import ProcessId
from ray_sentinel.model.incident import ChainLink
from ray_sentinel.model.stacks import StackFact
from ray_sentinel.waitgraph.picture import ClusterPicture, JobPicture, JobProcess, WaitRoot

HOSTILE = "[red]a\x1b[2Jb[/x]:smile:"


def root(kind: str, sentence: str) -> WaitRoot:
    link = ChainLink(start="driver", end="A 1", how="ray.get", since=1.0, witness="stack")
    return WaitRoot(
        kind=kind,  # type: ignore[arg-type]
        who=("A 1",),
        why="sleeping",
        waiters=3,
        chain=(link,),
        sentence=sentence,
    )


def job(*roots: WaitRoot, command: str = "python rl.py", job_id: str = "01000000") -> JobPicture:
    fact = StackFact(
        process=ProcessId("n1", 7, 9),
        signature=("main (rl.py:1)", "get (w.py:2)"),
        label="waiting for Ray",
    )
    driver = JobProcess(
        label="driver", role="driver", host="n1", pid=7, activity="waiting for Ray", place="x"
    )
    unseen = JobProcess(label="A 1", role="A", host="n1", pid=8, problem="no permission")
    return JobPicture(
        job=job_id,
        command=command,
        started=10.0,
        roots=roots,
        processes=(driver, unseen),
        facts=(fact,),
    )


def shown(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    picture: ClusterPicture,
    *arguments: str,
) -> tuple[int, str]:
    @contextlib.contextmanager
    def connect(address: str) -> Iterator[None]:
        yield None

    monkeypatch.setattr(cluster, "connect", connect)
    monkeypatch.setattr(job_stacks, "inspect_jobs", lambda ray: picture)
    code = main(["stacks", *arguments])
    return code, capsys.readouterr().out


def test_a_job_that_is_held_up(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    picture = ClusterPicture(
        time=75.0, jobs=(job(root("broken", "driver waits")),), notes=("late",)
    )
    code, out = shown(monkeypatch, capsys, picture)
    assert code == 1
    assert out.splitlines() == [
        "job 01000000: 2 processes, running for 1:05",
        "  python rl.py",
        "  driver on n1, pid 7: waiting for Ray in x",
        "who waits for whom:",
        "  driver waits (2 more wait for it)",
        "stacks of 1 process at 1 place:",
        "     1  main (rl.py:1)",
        "     1  get (w.py:2)",
        "          = waiting for Ray: driver",
        "  ! A 1 (n1 pid 8): no permission",
        "  ! late",
    ]


@pytest.mark.parametrize(("kind", "code"), [("works", 0), ("standing", 0), ("circle", 1)])
def test_only_what_cannot_go_on_is_a_problem(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], kind: str, code: int
) -> None:
    picture = ClusterPicture(time=75.0, jobs=(job(root(kind, "driver waits")),))
    assert shown(monkeypatch, capsys, picture)[0] == code


def test_one_job_of_several(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    stuck = job(root("standing", "driver waits"))
    picture = ClusterPicture(time=75.0, jobs=(stuck, job(job_id="02000000")))
    code, out = shown(monkeypatch, capsys, picture, "--job", "02000000")
    assert code == 0
    assert "01000000" not in out
    assert "nobody was seen to wait for anybody" in out


def test_no_job(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    assert shown(monkeypatch, capsys, ClusterPicture(time=75.0)) == (0, "no job runs\n")


def test_programs_get_the_chain_by_the_words_of_the_contract(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    picture = ClusterPicture(time=75.0, jobs=(job(root("standing", "driver waits")),))
    code, out = shown(monkeypatch, capsys, picture, "--json")
    (told,) = json.loads(out)["jobs"]
    assert code == 0
    assert told["roots"][0]["chain"] == [
        {"from": "driver", "to": "A 1", "how": "ray.get", "since": 1.0, "witness": "stack"}
    ]


def test_hostile_names_are_shown_as_they_are(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    picture = ClusterPicture(time=75.0, jobs=(job(root("standing", HOSTILE), command=HOSTILE),))
    out = shown(monkeypatch, capsys, picture)[1]
    assert "\x1b" not in out
    assert out.count("[red]a\\x1b[2Jb[/x]:smile:") == 2


def test_a_name_with_newlines_adds_no_line_and_one_with_a_raised_digit_is_no_number(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    forged = "A \u00b2\n  ! all is well"
    found = job(root("standing", f"driver waits for {forged}"), command="python -c 'x\ny'")
    unseen = msgspec.structs.replace(found.processes[0], label=forged, activity="", place="")
    unseen = msgspec.structs.replace(unseen, problem="its stack could not be taken")
    found = msgspec.structs.replace(found, processes=(unseen, *found.processes[1:]))
    code, out = shown(monkeypatch, capsys, ClusterPicture(time=20.0, jobs=(found,)))
    assert code == 0
    assert "  ! all is well" not in out.splitlines()
    assert "  python -c 'x y'" in out.splitlines()
    assert "  driver on n1, pid 7: its stack could not be taken" in out.splitlines()
    assert "A \u00b2 ! all is well" in out
