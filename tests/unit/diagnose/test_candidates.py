"""What may have slowed a job is said with its place, whether or not that place is to blame."""

from __future__ import annotations

import pytest

from ray_sentinel.diagnose.detect import candidates
from tests.support.diagnosis import case_of
from tests.support.tsdb_scenarios.catalogue import scenario


@pytest.mark.parametrize(("name", "blamed"), [("hang-network-trigger", 0), ("network-one-link", 1)])
def test_ports_in_trouble_are_named_also_where_none_slows_the_steps(name: str, blamed: int) -> None:
    world, _ = scenario(name).make(100)
    (link,) = [one for one in candidates.find(case_of(world)) if one.cause == "rdma-link"]
    assert " of node" in link.text
    assert len(link.culprits) == blamed
