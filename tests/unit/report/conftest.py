"""The incident that the reports of this folder are of."""

from __future__ import annotations

import pytest

from ray_sentinel.model.incident import Incident
from tests.support.engine_sim import Sim


@pytest.fixture(scope="package")
def incident() -> Incident:
    sim = Sim()
    sim.run(30)
    sim.stick(4)
    sim.run(20)
    (found,) = sim.incidents()
    return found
