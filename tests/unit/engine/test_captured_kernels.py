"""A rank that waits for its device: the kernels that a debugger lists there say for what."""

from __future__ import annotations

import msgspec
import pytest

from ray_sentinel.config import CaptureConfig
from ray_sentinel.engine.actions import Capture
from ray_sentinel.engine.incidents import asking
from ray_sentinel.model.stacks import StackFact
from tests.support.engine_sim import Sim, SimRank


def hung(*kernels: str) -> Sim:
    """Of two ranks one waits in a collective. The other polls for its device, which sampling does
    not tell from a wait for a collective's kernel; a debugger lists ``kernels`` on it."""
    sim = Sim(world=2, nodes=1)

    def debugged(rank: SimRank) -> StackFact:
        running = kernels if rank.number == 1 else ()
        return msgspec.structs.replace(sim.fact(rank), kernels=running, kernels_listed=True)

    sim.capture_answer = debugged
    sim.run(30)
    sim.stick(
        1,
        activity="device-wait",
        label="waiting for the device",
        waits=None,
        state="R",
        spinning=True,
    )
    sim.run(60)
    return sim


def test_a_kernel_of_its_own_names_the_rank() -> None:
    sim = hung("spin_until_told")
    (incident,) = sim.incidents()
    assert (sim.named(), incident.kind) == ([1], "device-stuck")
    assert incident.verdict is not None
    assert "the kernel spin_until_told" in incident.verdict.culprits[0].reason
    captures = [action for action in sim.actions if isinstance(action, Capture)]
    assert len(captures) == 1, "the bundle has its stacks already"


@pytest.mark.parametrize("kernels", [(), ("ncclDevKernel_AllReduce_Sum_f32_RING_LL",)])
def test_no_kernel_or_one_of_a_collective_names_nobody(kernels: tuple[str, ...]) -> None:
    sim = hung(*kernels)
    assert len(sim.incidents()) == 1
    assert sim.named() == []


def test_whose_stacks_only_harmless_tools_took_is_not_counted_as_traced() -> None:
    """Else no capture would follow where that one is named later."""
    sim = Sim(world=4, nodes=1)
    sim.capture_answer = sim.fact
    sim.run(30)
    sim.stick(1)
    sim.run(20)
    (case,) = sim.engine.store.cases.values()
    action = next(action for action in sim.actions if isinstance(action, Capture))
    assert action.others
    assert set(case.traced) == {rank.process for rank in (*action.suspects, *action.waiters)}


def held_until(sim: Sim) -> list[float]:
    """Until when debuggers may hold each rank, as the engine knows."""
    (job,) = sim.engine.view.jobs.values()
    return [view.traced_until for view in job.live]


def test_ranks_of_which_the_tools_bring_nothing_are_held_no_longer() -> None:
    sim = Sim(world=2, nodes=1)
    sim.run(30)
    sim.stick(1)
    sim.run(20)
    assert any(isinstance(action, Capture) for action in sim.actions)
    assert all(until < sim.now for until in held_until(sim))


def test_a_capture_that_is_made_again_after_a_restart_holds_its_ranks_anew() -> None:
    sim = Sim(world=2, nodes=1)
    sim.run(30)
    sim.stick(1)
    sim.run(20)
    (case,) = sim.engine.store.cases.values()
    action = next(action for action in sim.actions if isinstance(action, Capture))
    asking.again(case, action, sim.now, CaptureConfig())
    traced = {rank.process for rank in (*action.suspects, *action.waiters)}
    assert {view.rank.process for view in case.job.live if view.traced_until > sim.now} == traced
