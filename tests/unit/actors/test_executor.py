"""What the coordinator keeps of incidents, and for how long."""

from __future__ import annotations

import errno
import json
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import msgspec
import pytest

from ray_sentinel.actors.coordinator import diagnosing
from ray_sentinel.actors.coordinator.executor import LATE_SECONDS, Executor, limited
from ray_sentinel.actors.coordinator.gathering.judged_evidence import (
    ArrivalEvidence,
    DumpEvidence,
    with_verdict,
)
from ray_sentinel.actors.messages import (
    Dump,
    DumpRequest,
    Dumps,
    NodeCapture,
    Outputs,
    Sampled,
    pack,
)
from ray_sentinel.actors.raylets import raylet_answers
from ray_sentinel.actors.storage import DeploymentStorage
from ray_sentinel.clock import Clock
from ray_sentinel.config import CaptureConfig as CaptureSettings
from ray_sentinel.config import Config
from ray_sentinel.engine.actions import AskArrivals, AskRecorder, Capture, TakeStacks
from ray_sentinel.engine.events import (
    AnyEvent,
    CaptureDone,
    RecorderExplained,
    StacksTaken,
    StragglersFound,
    StragglersKept,
)
from ray_sentinel.engine.straggling import told_as
from ray_sentinel.evidence.flight_recorder.reduced import Form, reduce
from ray_sentinel.model.identity import ProcessId, Rank, RankId
from ray_sentinel.model.incident import Incident, IncidentState, RankLog, RankOutput
from ray_sentinel.model.stacks import StackFact
from tests.support.incidents import an_incident
from tests.support.recorder_sim.dumps import NCCL, write
from tests.support.recorder_sim.faults import simulate
from tests.support.waiting import eventually


def executor(folder: Path, clock: Clock | None = None, agents: object = None) -> Executor:
    config = Config(log_dir=str(folder), capture=CaptureSettings(series_seconds=0.001))
    nodes, storage = cast(Any, agents), DeploymentStorage(config)
    nobody = cast(Any, SimpleNamespace(handle=lambda node_id: None))
    return Executor(config, nobody, storage, clock=clock, agents=nodes)


def publish(executor: Executor, incident: Incident, *states: IncidentState) -> None:
    """Written when this returns."""
    for state in states:
        executor.publish(msgspec.structs.replace(incident, state=state))


def incident(number: int) -> Incident:
    return an_incident(id=f"{number:04d}", suspected_at=1_767_323_045.0 + number)


def test_nothing_is_kept_of_incidents_that_are_over(tmp_path: Path) -> None:
    executing = executor(tmp_path)
    for number in range(1, 31):
        publish(executing, incident(number), "confirmed", "explained", "resolved")
    publish(executing, incident(31), "confirmed")
    assert list(executing.latest) == ["0031"]
    assert [n for n in range(1, 32) if executing.bundles.known(f"{n:04d}")] == [31]
    assert len(executing.bundles.open()) == 1
    assert len(list((tmp_path / "incidents").iterdir())) == 31


def test_what_comes_late_of_an_incident_that_is_over_goes_into_its_folder(tmp_path: Path) -> None:
    executing = executor(tmp_path)
    publish(executing, incident(1), "confirmed", "resolved")
    folder, problems, _ = executing.bundles.store(incident(1), {"late.txt": b"x"})
    assert problems == []
    assert folder is not None
    assert (folder / "late.txt").read_bytes() == b"x"
    assert len(list((tmp_path / "incidents").iterdir())) == 1


def test_a_diagnosis_that_comes_after_the_end_does_not_reopen_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    over = threading.Event()

    def slow(*_: object) -> dict[str, bytes]:
        over.wait(20.0)
        return {"diagnosis.json": b"{}"}

    monkeypatch.setattr(diagnosing, "diagnosed", slow)
    executing = executor(tmp_path)
    stalled = msgspec.structs.replace(incident(1), kind="stall")
    publish(executing, stalled, "confirmed")
    executing.diagnose(stalled)
    publish(executing, stalled, "resolved")
    assert list(executing.latest) == ["0001"], "its diagnosis is still to come"
    over.set()
    (folder,) = (tmp_path / "incidents").iterdir()
    eventually((folder / "diagnosis.json").exists, "it came")
    eventually(lambda: not executing.latest, "its report is written", 120.0)
    assert json.loads((folder / "incident.json").read_bytes())["state"] == "resolved"
    publish(executing, incident(2), "confirmed")
    assert list(executing.latest) == ["0002"]
    assert executing.diagnose.seen == set()


def test_a_capture_that_fails_is_answered_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    executing = executor(tmp_path)
    answers: list[AnyEvent] = []

    def take(event: AnyEvent) -> int:
        answers.append(event)
        return len(answers)

    def fail(*_: object, **__: object) -> None:
        raise OSError(errno.EIO, "Input/output error")

    executing.feed = take
    monkeypatch.setattr(executing.bundles, "store", fail)
    executing(Capture(incident=incident(7)))
    (done,) = eventually(lambda: answers, "it is answered")
    assert isinstance(done, CaptureDone)
    assert (done.incident, done.bundle) == ("0007", "")
    assert "Input/output error" in done.problems[0]


class BusyAgents:
    """Answer only when nobody waits for them any more; the clock has gone on by ``seconds``."""

    def __init__(self, clock: SetClock, seconds: float) -> None:
        self._clock, self._seconds = clock, seconds

    def ask(
        self,
        method: str,
        requests: object,
        kind: object,
        seconds: float,
        late_answer: Callable[[bytes], None],
    ) -> tuple[dict[str, Sampled], list[str]]:
        self._clock.at += self._seconds
        late_answer(pack(Sampled(facts=(StackFact(process=ProcessId("host", 7, 1)),))))
        return {}, ["node n: no answer to sample within 3 s"]


class SetClock:
    """A clock that is set by hand."""

    def __init__(self) -> None:
        self.at = 1000.0

    def now(self) -> float:
        return self.at

    def monotonic(self) -> float:
        return self.at


@pytest.mark.parametrize(("seconds", "count"), [(5.0, 2), (LATE_SECONDS + 1, 1)])
def test_stacks_that_come_late_are_told_with_the_time_they_were_asked_for(
    tmp_path: Path, seconds: float, count: int
) -> None:
    clock = SetClock()
    executing = executor(tmp_path, clock, BusyAgents(clock, seconds))
    told: list[AnyEvent] = []
    executing.feed = lambda event: told.append(event) or len(told)  # type: ignore[func-returns-value]
    executing(TakeStacks(incident="0001", round=2, ranks=()))
    eventually(lambda: len(told) == count, "what came is told")
    taken = [event for event in told if isinstance(event, StacksTaken)]
    assert {(event.incident, event.round) for event in taken} == {("0001", 2)}
    (whole,) = [event for event in taken if event.asked_at is None]
    assert (whole.facts, len(whole.problems)) == ((), 1)
    late = [event for event in taken if event.asked_at is not None]
    assert [(event.asked_at, len(event.facts)) for event in late] == [(1000.0, 1)] * (count - 1)


class Node:
    """An agent that has one stack and one rank's last lines, when ``ready`` says so."""

    def __init__(self) -> None:
        self.ready: dict[str, threading.Event] = {}
        """By the capture's mark; those that are not here need not wait."""

    def ask(
        self, method: str, requests: dict[str, Any], kind: object, seconds: float
    ) -> tuple[dict[str, NodeCapture | Outputs], list[str]]:
        if method == "flight_recorder":
            return {}, []
        return {node: self._answer(method, request) for node, request in requests.items()}, []

    def _answer(self, method: str, request: Any) -> NodeCapture | Outputs:
        (one,) = request.writers if method == "rank_output" else request.others
        if (ready := self.ready.get(one.node)) is not None:
            assert ready.wait(20.0)
        data = one.node.encode()
        if method == "capture":
            return NodeCapture(files={"pyspy_h_7.txt": data})
        log = RankLog(rank=0, host="h", pid=7)
        return Outputs(found=(RankOutput(log=log, data=data),))


def capture_of(incident: Incident, mark: str) -> Capture:
    rank = Rank(id=RankId("job", 0, 0), process=ProcessId("h", 7), node=mark)
    return Capture(incident=incident, others=(rank,))


def looking(folder: Path, *incidents: Incident) -> tuple[Executor, Node]:
    config = Config(log_dir=str(folder), capture=CaptureSettings(series_seconds=0.001))
    storage = DeploymentStorage(config)
    node = Node()
    nodes = cast(Any, node)
    return Executor(config, cast(Any, None), storage, incidents, agents=nodes), node


def marks(folder: Path) -> dict[str, str]:
    """What the files of all captures hold, by their names in the only bundle."""
    bundle = folder / "incidents"
    files = [*bundle.glob("2*/**/pyspy_*.txt"), *bundle.glob("2*/**/rank-*.log")]
    return {"/".join(path.relative_to(folder).parts[2:]): path.read_text() for path in files}


def test_all_files_of_a_capture_lie_in_one_folder_whichever_ends_first(tmp_path: Path) -> None:
    executing, node = looking(tmp_path)
    node.ready["first"] = threading.Event()
    executing(capture_of(incident(1), "first"))
    eventually(lambda: executing.captures_begun, "the first has begun")
    executing(capture_of(incident(1), "second"))
    eventually(lambda: len(marks(tmp_path)) == 2, "the second has ended")
    node.ready["first"].set()
    eventually(lambda: len(marks(tmp_path)) == 4, "the first has ended")
    executing.close()
    assert marks(tmp_path) == {
        "pyspy_h_7.txt": "first",
        "logs/rank-0.log": "first",
        "look_2/pyspy_h_7.txt": "second",
        "look_2/logs/rank-0.log": "second",
    }
    # After a restart also a capture that was begun and did not end keeps what it has.
    folder = executing.bundles.known("0001")
    again, _ = looking(tmp_path, msgspec.structs.replace(incident(1), bundle=str(folder)))
    again(capture_of(incident(1), "third"))
    eventually(lambda: len(marks(tmp_path)) == 6, "it has ended")
    again.close()
    found = marks(tmp_path)
    assert (found["look_3/pyspy_h_7.txt"], found["look_3/logs/rank-0.log"]) == ("third", "third")
    assert len(found) == 6


def test_a_diagnosis_that_is_written_late_is_no_capture(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    executing = executor(tmp_path)
    answers: list[AnyEvent] = []

    def take(event: AnyEvent) -> int:
        answers.append(event)
        return len(answers)

    executing.feed = take
    gate, store = threading.Event(), executing.bundles.store

    def slow(incident: Incident, files: Any) -> Any:
        assert gate.wait(20.0)
        return store(incident, files)

    executing.bundles.store = slow  # type: ignore[method-assign]
    executing.writer.seconds = 0.05
    monkeypatch.setattr(diagnosing, "diagnosed", lambda *_: {"diagnosis.json": b"{}"})
    executing.diagnose(msgspec.structs.replace(incident(1), kind="stall"))
    gate.set()
    root = tmp_path / "incidents"
    eventually(lambda: list(root.glob("*/diagnosis.json")), "the diagnosis is written")
    eventually(lambda: list(root.glob("*/incident.json")), "and the report")
    executing.close()
    assert not any(isinstance(answer, CaptureDone) for answer in answers)


def test_a_raylet_that_refuses_is_dead_and_one_without_a_port_unknown() -> None:
    assert raylet_answers("127.0.0.1", 9)[0] is False
    assert raylet_answers("127.0.0.1", 0)[0] is None


def a_rank(number: int) -> Rank:
    return Rank(id=RankId("j", 0, number), process=ProcessId("h", number + 1), node="n")


def test_no_more_processes_are_paused_than_allowed() -> None:
    ranks = [a_rank(number) for number in range(4)]
    asked = Capture(incident=an_incident(), suspects=tuple(ranks[:2]), waiters=tuple(ranks[2:]))
    cut = limited(asked, 3)
    assert cut.suspects == tuple(ranks[:2])
    assert cut.waiters == (ranks[2],)
    assert cut.others == (ranks[3],)


class NodeWithDumps:
    """Answers for the one node, whose ranks have recorders of pairs and of halves."""

    def ask(
        self, method: str, requests: Mapping[str, DumpRequest], kind: object, seconds: float
    ) -> tuple[dict[str, Dumps], list[str]]:
        assert method == "flight_recorder"
        ((node, request),) = requests.items()
        form: Form = "judged" if request.judged else "whole"
        machine = simulate("tp2dp4", "stop between", 2).machine
        dumps = tuple(
            Dump(rank=rank, digest=b"d", data=reduce(data, form))
            for rank, data in write(machine, NCCL).items()
        )
        return {node: Dumps(dumps=dumps)}, []


def test_recorders_that_are_read_in_a_case_tell_the_groups_once_the_verdict_has_them(
    tmp_path: Path,
) -> None:
    subject = executor(tmp_path, agents=NodeWithDumps())
    fed: list[tuple[AnyEvent, bool]] = []

    def feed(event: AnyEvent) -> int:
        fed.append((event, bool(subject.groups.report().jobs)))
        return len(fed)

    subject.feed = feed
    subject(AskRecorder(incident="0001", ranks=tuple(map(a_rank, range(8)))))
    (job,) = eventually(lambda: subject.groups.report().jobs, "the groups are known")
    assert [kind.name for kind in job.kinds] == ["TENSOR", "DATA"]
    ((event, known_before),) = fed
    assert isinstance(event, RecorderExplained)
    assert event.facts is not None
    assert not known_before
    assert event.judged_from is not None
    facts = DumpEvidence.unpacked(event.judged_from.data).explain()
    assert with_verdict(event, facts) == event


def test_what_stragglers_were_judged_by_follows_the_incident_that_is_told(tmp_path: Path) -> None:
    subject = executor(tmp_path, agents=NodeWithDumps())
    fed: list[AnyEvent] = []

    def feed(event: AnyEvent) -> int:
        fed.append(event)
        return len(fed)

    subject.feed = feed
    ranks = tuple(map(a_rank, range(8)))
    subject(AskArrivals(job="j", attempt=0, ranks=ranks, offsets={3: 0.5}))
    (found,) = eventually(lambda: fed, "the look is over")
    assert isinstance(found, StragglersFound)
    assert found.facts is not None
    told = msgspec.structs.replace(
        incident(1), job="j", attempt=0, straggler=told_as(found.facts, found.time)
    )
    publish(subject, told, "confirmed", "explained")
    (kept,) = fed[1:]
    assert isinstance(kept, StragglersKept)
    assert (kept.incident, kept.at) == ("0001", found.time)
    evidence = ArrivalEvidence.unpacked(kept.judged_from.data)
    assert evidence.explain() == found.facts
    assert evidence.hosts == dict.fromkeys(range(8), "h")
    assert evidence.offsets == {3: 0.5}
