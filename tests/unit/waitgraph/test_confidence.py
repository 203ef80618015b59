"""How sure an answer is: the fitted weights, and the one sum that all judges state."""

from __future__ import annotations

import math

import pytest

from ray_sentinel.model.incident import Culprit, EvidenceItem, Verdict
from ray_sentinel.model.ras import RasCulprit, RasFacts
from ray_sentinel.model.recorder import RecorderCulprit, RecorderFacts
from ray_sentinel.waitgraph.confidence import (
    CONSTANT,
    MOST,
    NOT_DRAWN,
    OUTNUMBERED,
    PROOF,
    SEEN_ONCE,
    SEVERAL,
    STACKS,
    WEAKENING,
    by_calls,
    by_tool,
    confidence,
    of_tool,
    parts,
    put_on_culprit,
    put_on_rank,
    stated,
)
from ray_sentinel.waitgraph.fitted_weights import FACTORS, MADE
from ray_sentinel.waitgraph.stacks import WEIGHTS

SOURCES = ("flight-recorder", "stacks", "nccl-ras", "ray", "process", "exit", "progress")
WITNESSES = [who for who in FACTORS if who not in (CONSTANT, SEVERAL, NOT_DRAWN, *WEAKENING)]


def recorders(strength: float, *ranks: int) -> RecorderFacts:
    culprits = tuple(RecorderCulprit(rank=r, kind="not-enqueued", reason="") for r in ranks)
    return RecorderFacts(kind="not-enqueued", culprits=culprits, strength=strength)


def test_the_file_of_weights_is_well_formed() -> None:
    assert {CONSTANT, SEVERAL, NOT_DRAWN, *WEAKENING} <= FACTORS.keys()
    assert all(math.isfinite(factor) for factor in FACTORS.values())
    assert {who.partition(": ")[0] for who in WITNESSES} <= {*SOURCES}
    proofs = {who.partition(": ")[2] for who in WITNESSES if who.startswith(f"{STACKS}: ")}
    assert proofs <= {*WEIGHTS, "waits", "moves", "no stack"}


def test_the_file_says_from_what_it_was_made_and_how_well_it_does() -> None:
    assert "bench/calibration.py" in MADE["command"]
    assert sum(MADE["fitted on"].values()) > 500
    for part in ("held out", "held out, stated 85 to 95 %", "real incidents"):
        assert MADE[part]["verdicts"] > 20
        assert MADE[part]["brier"] < 0.15
    # What the file is for: of verdicts with 90 %, about 90 % are right.
    near = MADE["held out, stated 85 to 95 %"]
    assert near["right"] == pytest.approx(near["stated"], abs=0.06)
    assert MADE["held out"]["gap"] < 0.06


@pytest.mark.parametrize("witness", WITNESSES)
def test_more_evidence_never_makes_it_less_sure(witness: str) -> None:
    for other in ({}, {"process": PROOF}, {SEVERAL: 1.0, "exit": 3.0}):
        told = [stated({**other, witness: weight}) for weight in (0.0, 1.0, 2.5, 6.0)]
        assert told == sorted(told)


@pytest.mark.parametrize("kind", WEIGHTS)
@pytest.mark.parametrize("weak", [(SEEN_ONCE,), (OUTNUMBERED,), (SEEN_ONCE, OUTNUMBERED)])
@pytest.mark.parametrize("other", [{}, {"flight-recorder: not-enqueued": 2.5}, {SEVERAL: 1.0}])
def test_a_weak_proof_is_no_surer_than_a_strong_one_and_no_worse_than_none(
    kind: str, weak: tuple[str, ...], other: dict[str, float]
) -> None:
    assert FACTORS[SEVERAL] <= 0
    strong = {**other, f"{STACKS}: {kind}": 3.0}
    weakened = strong | {f"{STACKS}: {one}": 3.0 for one in weak}
    assert stated(other) <= stated(weakened) <= stated(strong)
    assert sum(parts(weakened).values()) >= sum(parts(other).values()) - 1e-9


def test_it_is_the_sum_of_the_parts_and_never_certain() -> None:
    known = {"stacks: elsewhere": 3.0, "exit": 3.0}
    odds = FACTORS[CONSTANT] + 3 * FACTORS["stacks: elsewhere"] + 3 * FACTORS["exit"]
    assert sum(parts(known).values()) == pytest.approx(odds)
    assert stated(known) == pytest.approx(min(MOST, 1 / (1 + math.exp(-odds))), abs=5e-4)
    assert stated({"process": 100.0}) == MOST
    assert stated({"process": 1e6}) == MOST
    assert stated({"process": -1e6}) == 0.0


def test_a_witness_that_no_job_had_counts_as_before_anything_was_fitted() -> None:
    score = 6.0
    odds = FACTORS[CONSTANT] + FACTORS[NOT_DRAWN] * score
    assert stated({"telemetry": score}) == pytest.approx(1 / (1 + math.exp(-odds)), abs=5e-4)
    assert stated({"telemetry": score}) == pytest.approx(0.9, abs=0.03)


def test_of_several_the_one_that_is_least_sure_counts() -> None:
    strong, weak = {"process": 8.0}, {"stacks: unknown code": 2.5}
    assert confidence([strong, weak]) == stated({SEVERAL: 1.0, **weak})
    assert confidence([weak]) >= confidence([strong, weak])


def test_recorders_alone_say_what_the_sum_says_of_them() -> None:
    facts = recorders(0.9, 3)
    assert of_tool(facts) == confidence(by_tool(facts))
    assert of_tool(facts) >= of_tool(recorders(0.65, 3))
    assert of_tool(recorders(0.3)) == 0.3


def test_ras_that_names_nobody_says_how_strong_its_reason_is() -> None:
    one = RasCulprit(rank=1, host="h", pid=2, kind="not-enqueued", reason="")
    facts = RasFacts(kind="not-enqueued", culprits=(one,), strength=0.85)
    assert of_tool(facts) == stated({"nccl-ras: not-enqueued": 5.1})
    assert of_tool(RasFacts(kind="no-mismatch")) == 0.0


def test_evidence_is_summed_by_its_proof() -> None:
    items = [
        EvidenceItem(source="stacks", text="", weight=3.0, proof=("elsewhere", SEEN_ONCE)),
        EvidenceItem(source="stacks", text="", weight=-2.0, proof=("moves",)),
        EvidenceItem(source="exit", text="", weight=3.0),
        EvidenceItem(source="node", text="context"),
    ]
    assert put_on_rank(items) == {
        "stacks: elsewhere": 3.0,
        "stacks: seen once": 3.0,
        "stacks: moves": -2.0,
        "exit": 3.0,
    }


def test_a_verdict_s_testimony_is_about_whom_it_is_least_sure_of() -> None:
    culprits = [Culprit(rank=rank, host="h", pid=rank, reason="") for rank in (1, 2)]
    items = (
        EvidenceItem(source="process", text="", weight=8.0, rank=1),
        EvidenceItem(source="exit", text="", weight=3.0, rank=2),
        EvidenceItem(source="exit", text="", weight=-3.0, rank=0),
    )
    verdict = Verdict(kind="rank-dead", summary="", culprits=tuple(culprits), evidence=items)
    assert put_on_culprit(verdict) == {SEVERAL: 1.0, "exit": 3.0}


def test_the_waits_of_a_ray_job_rest_on_the_kind_of_their_end() -> None:
    item = EvidenceItem(source="ray", text="it sleeps", proof=("standing",))
    culprit = Culprit(rank=None, host="h", pid=1, reason="", actor="Rollout 0")
    verdict = Verdict(kind="actor-stuck", summary="", culprits=(culprit,), evidence=(item,))
    assert put_on_culprit(verdict) == by_calls("standing") == {"ray: standing": PROOF}
    nobody = Verdict(kind="unknown", summary="", evidence=(item,))
    assert put_on_culprit(nobody) == {}
