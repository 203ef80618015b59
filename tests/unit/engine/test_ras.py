"""NCCL RAS as a witness: it names where stacks cannot, and its silence accuses nobody."""

from __future__ import annotations

from ray_sentinel.engine.actions import AnyAction, AskRas
from ray_sentinel.engine.events import RasExplained
from ray_sentinel.model.ras import RasCulprit, RasFacts, RasKind, RasWait
from tests.support.engine_sim import Sim


class RasSim(Sim):
    """A simulated job whose RAS service answers with ``facts``."""

    facts: RasFacts | None = None
    asked = 0

    def answer(self, action: AnyAction) -> None:
        if isinstance(action, AskRas):
            self.asked += 1
            at = self.now + 0.2
            event = RasExplained(time=at, incident=action.incident, facts=self.facts)
            self.pending.append((at, event))
        super().answer(action)


def behind(rank: int, strength: float, kind: RasKind = "not-enqueued") -> RasFacts:
    return RasFacts(
        kind=kind,
        culprits=(RasCulprit(rank=rank, host="host1", pid=1000 + rank, kind=kind, reason="lags"),),
        waits=(RasWait(ranks=tuple({*range(6)} - {rank}), communicator="c", text="1 of 6"),),
        strength=strength,
        polls=1,
    )


def hung_alike(sim: Sim) -> None:
    """All stacks look the same: the kernels on the devices wait for each other."""
    sim.run(20)
    for rank in sim.ranks:
        sim.stick(rank.number, where=("main (train.py:1)", "all_reduce (c10d.py:9)"))
        rank.activity, rank.waits = "collective-wait", True


def test_a_rank_that_is_behind_is_named_where_stacks_are_alike() -> None:
    sim = RasSim()
    sim.facts = behind(4, 0.85)
    hung_alike(sim)
    sim.run(30)
    assert sim.named() == [4]
    assert sim.asked >= 1
    (incident,) = sim.incidents()
    assert incident.verdict is not None
    assert any(item.source == "nccl-ras" for item in incident.verdict.evidence)


def test_a_call_of_another_collective_is_its_kind() -> None:
    sim = RasSim()
    sim.facts = behind(2, 0.85, "collective-mismatch")
    hung_alike(sim)
    sim.run(30)
    assert sim.incidents()[0].kind == "collective-mismatch"
    assert sim.named() == [2]


def test_no_mismatch_accuses_nobody_and_excuses_nobody() -> None:
    sim = RasSim()
    sim.facts = RasFacts(kind="no-mismatch", evidence=("no proof",), polls=1)
    sim.run(20)
    sim.stick(3)
    sim.run(30)
    assert sim.named() == [3]


def test_without_nccl_nothing_changes() -> None:
    sim = RasSim()
    hung_alike(sim)
    sim.run(60)
    (incident,) = sim.incidents()
    assert incident.kind == "unknown"
    assert incident.verdict is not None
    assert not incident.verdict.culprits


def test_a_lag_seen_once_does_not_outweigh_a_stack_that_waits() -> None:
    sim = RasSim()
    sim.facts = behind(1, 0.5)
    hung_alike(sim)
    sim.run(60)
    assert sim.named() == []
