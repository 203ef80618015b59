"""Every generated job gets the answer that was planted into it, whatever model, size and style."""

from __future__ import annotations

import msgspec
import pytest

from ray_sentinel.diagnose.playbooks import playbooks
from ray_sentinel.report.contract import diagnosis_dict
from tests.support.diagnosis import case_of, diagnosed, faults
from tests.support.tsdb_scenarios.catalogue import scenario, scenarios

MODELS = ("MI355X", "MI300X", "H100", "B200")
SIZES = (4, 2, 8, 3)
SEEDS = 4
NAMES = [one.name for one in scenarios()]

FACTS_OF_BOTH = {
    ("hang", "network-health"),
    ("hardware", "hang"),
    ("hardware", "gpu-health"),
    ("heartbeat", "hang"),
    ("hardware", "network-health"),
}
"""Whose scenario → whose answer: a dead link under a hang is a fact for the network playbook too,
a job that hardware ended may have got over a bad link, and a node that died with errors, or before
a heartbeat timeout, leaves the others hanging."""


@pytest.mark.parametrize("name", NAMES)
def test_planted_cause_and_culprits_are_named(name: str) -> None:
    wrong = []
    for seed in range(SEEDS):
        size = SIZES[seed % 4] if scenario(name).hosts > 1 else None
        how = {"model": MODELS[seed % 4], "hosts": size, "style": ("ray", "ours")[seed // 2 % 2],
               "restless": seed % 2 == 1}  # fmt: skip
        _, truth, report = diagnosed(name, seed, **how)
        wrong += [f"seed {seed}: {fault}" for fault in faults(truth, report.diagnosis)]
        assert msgspec.json.encode(diagnosis_dict(report)), "what --json prints"
    assert not wrong


@pytest.mark.parametrize("name", NAMES)
def test_other_playbooks_say_not_this(name: str) -> None:
    world, truth = scenario(name).make(100)
    case, found = case_of(world), set()
    for playbook in playbooks():
        answer = playbook.run(case)
        if answer.outcome == "found" and truth.playbook != playbook.ANALYSIS:
            found.add((truth.playbook, playbook.ANALYSIS))
    assert found <= FACTS_OF_BOTH


def test_sixty_four_nodes() -> None:
    _, truth, report = diagnosed("network-one-link", 7, hosts=64, model="H100")
    assert len(report.inventory.hosts) == 64
    assert not faults(truth, report.diagnosis)


@pytest.mark.parametrize("name", ["hang-network-trigger", "network-one-link", "gpu-throttle"])
def test_the_root_comes_first_and_the_symptom_last(name: str) -> None:
    for seed in range(3):
        _, truth, report = diagnosed(name, seed)
        chain = report.diagnosis.chain
        assert chain[0].role == "root"
        assert chain[-1].role == "symptom"
        assert chain[0].at is not None
        assert truth.onset is not None
        assert abs(chain[0].at - truth.onset) < 90 + (chain[0].uncertainty or 0)
        assert all(link.promql for link in chain)
