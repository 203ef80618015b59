"""Whose last lines are asked for, what the bundle calls them, and what is said of the others."""

from __future__ import annotations

from typing import Any, cast

import msgspec

from ray_sentinel.actors.coordinator.gathering import cluster_outputs
from ray_sentinel.actors.coordinator.gathering.agents import Agents
from ray_sentinel.actors.coordinator.gathering.cluster_outputs import ClusterOutputs
from ray_sentinel.actors.messages import OutputRequest, Outputs
from ray_sentinel.engine.actions import Capture
from ray_sentinel.model.identity import ProcessId, Rank, RankId
from ray_sentinel.model.incident import (
    Culprit,
    EvidenceItem,
    Incident,
    RankLog,
    RankOutput,
    Verdict,
    Writer,
    writer_of,
)
from tests.support.incidents import an_incident

RANKS = [
    Rank(
        id=RankId("j", 0, number),
        process=ProcessId(f"host{number % 2}", 100 + number),
        node=f"node{number % 2}-of-the-cluster",
    )
    for number in range(6)
]


class Answering:
    """Agents of which those of ``silent`` nodes do not answer; each says what it was asked."""

    def __init__(self, *silent: str) -> None:
        self.silent = silent
        self.asked: dict[str, OutputRequest] = {}

    def ask(self, method: str, requests: dict[str, OutputRequest], kind: object, _: float) -> Any:
        assert method == "rank_output"
        self.asked = requests
        answers = {
            node: Outputs(found=tuple(map(self.found, request.writers)))
            for node, request in requests.items()
            if node not in self.silent
        }
        return answers, [f"node {node[:8]}: no answer within 12 s" for node in self.silent]

    @staticmethod
    def found(writer: Writer) -> RankOutput:
        host, pid = writer.process.host, writer.process.pid
        log = RankLog(rank=writer.rank, label=writer.label, host=host, pid=pid)
        return RankOutput(log=log, data="".join(f"line {n}\n" for n in range(20)).encode())


def gather(agents: Answering, action: Capture, look: int = 1) -> cluster_outputs.Harvest:
    return ClusterOutputs(cast(Agents, agents)).gather(action, look)


def blaming(*numbers: int, witness: int | None = None) -> Incident:
    culprits = tuple(
        Culprit(rank=n, host=f"host{n % 2}", pid=100 + n, reason="it stopped") for n in numbers
    )
    evidence = (EvidenceItem(source="stacks", text="x", rank=witness),)
    return an_incident(
        verdict=Verdict(kind="rank-dead", summary="s", culprits=culprits, evidence=evidence)
    )


def test_those_that_the_report_names_are_asked_culprits_first() -> None:
    agents = Answering()
    action = Capture(
        incident=blaming(3, witness=4),
        gone=(RANKS[3],),
        waiters=(RANKS[1],),
        others=(RANKS[0], RANKS[2], RANKS[4], RANKS[5]),
    )
    files, logs = gather(agents, action)
    assert [log.rank for log in logs] == [3, 1, 4]
    assert list(files) == ["logs/rank-3.log", "logs/rank-1.log", "logs/rank-4.log"]
    assert logs[0].lines == tuple(f"line {n}" for n in range(8, 20))
    assert logs[1].lines == ()


def test_a_driver_and_an_actor_that_are_named_come_before_the_ranks() -> None:
    culprits = (
        Culprit(rank=None, host="host0", pid=7, actor="Rollout 2", reason="was killed"),
        Culprit(rank=None, host="host1", pid=8, role="driver", reason="raised"),
    )
    verdict = Verdict(kind="actor-dead", summary="s", culprits=culprits)
    members = (
        Writer(process=ProcessId("host0", 7), node="node0-of-the-cluster", label="Rollout 2"),
        Writer(process=ProcessId("host1", 8), node="node1-of-the-cluster", label="driver"),
    )
    action = Capture(incident=an_incident(verdict=verdict), members=members, suspects=(RANKS[3],))
    files, logs = gather(Answering(), action)
    assert [log.who for log in logs] == ["Rollout 2", "driver", "rank 3"]
    assert list(files) == ["logs/Rollout-2.log", "logs/driver.log", "logs/rank-3.log"]
    assert [len(log.lines) for log in logs] == [12, 12, 0]


def test_where_nobody_is_named_all_are_asked_and_the_bytes_are_shared() -> None:
    agents = Answering()
    _, logs = gather(agents, Capture(incident=an_incident(), others=tuple(RANKS)))
    assert len(logs) == 6
    assert {request.most_bytes for request in agents.asked.values()} == {2 << 20}


def test_of_too_many_ranks_the_culprits_stay(monkeypatch: Any) -> None:
    monkeypatch.setattr(cluster_outputs, "MOST_WRITERS", 2)
    action = Capture(incident=blaming(5), suspects=(), others=tuple(RANKS), waiters=(RANKS[0],))
    _, logs = gather(Answering(), action)
    assert [log.rank for log in logs] == [5, 0]


def test_a_node_that_does_not_answer_is_named_for_each_of_its_ranks() -> None:
    action = Capture(incident=an_incident(), others=tuple(RANKS))
    files, logs = gather(Answering("node1-of-the-cluster"), action)
    assert len(files) == 3
    missing = {log.rank: log.missing for log in logs if not log.file}
    assert missing == dict.fromkeys((1, 3, 5), "node node1-of: no answer within 12 s")


def test_two_processes_of_one_rank_and_later_captures_overwrite_nothing() -> None:
    second = msgspec.structs.replace(RANKS[0], process=ProcessId("host0", 900))
    files, _ = gather(Answering(), Capture(incident=an_incident(), others=(RANKS[0], second)), 2)
    assert list(files) == ["look_2/logs/rank-0.log", "look_2/logs/rank-0-pid-900.log"]


def test_one_rank_is_asked_about_alone() -> None:
    agents = Answering()
    output = ClusterOutputs(cast("Agents", agents)).of(writer_of(RANKS[3]))
    assert (output.log.rank, output.log.pid) == (3, 103)
    assert [len(asked.writers) for asked in agents.asked.values()] == [1]
    silent = ClusterOutputs(cast("Agents", Answering(RANKS[3].node))).of(writer_of(RANKS[3]))
    assert silent.log.missing.endswith("no answer within 12 s")


def test_why_one_rank_has_no_output_is_masked() -> None:
    class Failing(Answering):
        def ask(
            self, method: str, requests: dict[str, OutputRequest], kind: object, seconds: float
        ) -> Any:
            answers, _ = super().ask(method, requests, kind, seconds)
            return answers, [f"node {node[:8]}: password=hunter2secret" for node in self.silent]

    agents = cast("Agents", Failing(RANKS[3].node))
    missing = ClusterOutputs(agents).of(writer_of(RANKS[3])).log.missing
    assert missing.startswith("node ")
    assert "hunter2" not in missing
