"""Who is named although it waits like the others, and what is said of it."""

from __future__ import annotations

import msgspec

from tests.support.engine_sim import Sim


def test_who_left_the_loop_is_named_and_it_is_said_why() -> None:
    around = {"main (train.py:1)": ("loop 1 body",), "main (train.py:20)": ()}
    sim = Sim()
    sim.stack_answer = lambda rank: msgspec.structs.replace(sim.fact(rank), blocks=around)
    sim.run(30)
    sim.stick(4, activity="collective-wait", waits=True, operation="barrier",
              where=("main (train.py:20)", "barrier (distributed_c10d.py:5)"))  # fmt: skip
    sim.run(30)
    (incident,) = sim.incidents()
    assert (sim.named(), incident.kind) == ([4], "collective-mismatch")
    assert incident.verdict is not None
    said = " ".join(item.text for item in incident.verdict.evidence)
    assert "has left a loop in which all others still are" in said
