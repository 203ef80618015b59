"""A rank that waits for its device: the kernels that a debugger lists there say for what."""

from __future__ import annotations

import msgspec
import pytest

from ray_sentinel.engine.actions import Capture
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
