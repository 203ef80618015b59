"""Answers of several nodes put together for a case, and compared with the first ones."""

from __future__ import annotations

from ray_sentinel.actors.coordinator.gathering.ras_witness import RasWitness, known_ranks
from ray_sentinel.capture.ras import RasPolls
from ray_sentinel.engine.actions import AskRas
from ray_sentinel.model.identity import ProcessId, Rank, RankId
from tests.support.ras_sim.agents import PollingAgents
from tests.support.ras_sim.job import Job
from tests.support.ras_sim.render import as_json


def ranks_of(job: Job) -> tuple[Rank, ...]:
    return tuple(
        Rank(
            id=RankId("job", 0, peer.world),
            process=ProcessId(f"node-{peer.world // job.per_node}", peer.pid),
            node=f"n{peer.world // job.per_node}",
            address=peer.host,
        )
        for peer in job.peers
    )


def test_the_second_question_of_a_case_is_compared_with_the_first() -> None:
    job = Job(1, 2, 4)
    job.run(20)
    job.world.launch("AllReduce", 1, but=(6,))
    witness = RasWitness(PollingAgents(lambda: RasPolls(polls=(as_json(job).encode(),))))
    first = witness(AskRas(incident="0001", ranks=ranks_of(job)))
    assert first is not None
    assert first.facts is not None
    assert not first.facts.culprits  # a lag of one, seen once
    job.wait(5)
    second = witness(AskRas(incident="0001", ranks=ranks_of(job)))
    assert second is not None
    assert second.facts is not None
    assert [culprit.rank for culprit in second.facts.culprits] == [6]
    job.wait(5)
    other = witness(AskRas(incident="0002", ranks=ranks_of(job)))
    assert other is not None
    assert other.facts is not None
    assert not other.facts.culprits


def test_a_job_without_nccl_gives_no_event() -> None:
    witness = RasWitness(PollingAgents(RasPolls))
    assert witness(AskRas(incident="0001", ranks=())) is None


def test_why_nobody_was_asked_is_told() -> None:
    answer = RasPolls(problems=("NCCL 2.27.3 is not asked",))
    witness = RasWitness(PollingAgents(lambda: answer, lambda: answer))
    event = witness(AskRas(incident="1", ranks=()))
    assert event is not None
    assert event.facts is None
    assert event.problems == ("NCCL 2.27.3 is not asked",)


def test_nonsense_is_a_problem_and_no_evidence() -> None:
    answer = RasPolls(polls=(b"hello",))
    event = RasWitness(PollingAgents(lambda: answer))(AskRas(incident="1", ranks=()))
    assert event is not None
    assert event.facts is None
    assert event.problems


def test_ranks_are_known_by_host_and_by_address() -> None:
    job = Job(2, 1, 2)
    table = known_ranks(ranks_of(job))
    assert table[job.peers[1].host, job.peers[1].pid] == 1
    assert table["node-0", job.peers[1].pid] == 1
