"""Real torch jobs on gloo that hang on purpose, their real recorders, and who is named."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from ray_sentinel.cli.main import main
from ray_sentinel.waitgraph.recorder import explain
from ray_sentinel.waitgraph.recorder_failed import explain_failed
from tests.support import gloo_failing_job, gloo_job

pytestmark = pytest.mark.integration


@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    ("scenario", "culprits", "kind"),
    [
        ("sleeper", {2}, "not-enqueued"),
        ("left_out", {3}, "collective-mismatch"),
        ("mismatch", {1}, "collective-mismatch"),
        ("two_groups", {0}, "not-enqueued"),
        # gloo records no send and no receive, so that nobody can be told apart.
        ("pipeline", set(), "cannot-tell"),
        ("objects", {1}, "not-enqueued"),
        ("two_sleepers", {1, 2}, "not-enqueued"),
        ("in_flight", {3}, "not-enqueued"),
        ("outside", set(), "waiting-outside"),
    ],
)
def test_scenario(
    scenario: str,
    culprits: set[int],
    kind: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    dumps = gloo_job.run(scenario, tmp_path)
    pickles = {rank: (tmp_path / f"pickle_{rank}").read_bytes() for rank in dumps}
    for data in (dumps, pickles):
        facts = explain(data, world_size=gloo_job.WORLD)
        assert {culprit.rank for culprit in facts.culprits} == culprits, facts.evidence
        assert facts.kind == kind
        assert facts.problems == ()
    code = main(["explain", "flight-recorder", str(tmp_path), "--prefix", "trace_", "--json"])
    assert json.loads(capsys.readouterr().out)["culprit_ranks"] == sorted(culprits)
    assert code == (0 if kind == "waiting-outside" else 1)


@pytest.mark.timeout(300)
def test_a_rank_that_works_longer_is_not_accused_of_a_hang(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    dumps = gloo_job.run("busy", tmp_path, settle=9.0)
    # A moment between two calls shows nothing pending.
    unaware = explain(dumps, world_size=gloo_job.WORLD)
    assert unaware.kind in ("not-enqueued", "waiting-outside", "running")
    main(["explain", "flight-recorder", str(tmp_path), "--prefix", "trace_", "--json"])
    found = json.loads(capsys.readouterr().out)
    assert found["culprit_ranks"] == [], found
    assert found["kind"] in ("cannot-tell", "waiting-outside", "running")


@pytest.mark.timeout(300)
@pytest.mark.parametrize("way", ["shape", "dtype", "small", "row", "rowsmall", "routed"])
def test_the_wrong_call_of_a_job_that_failed(way: str, tmp_path: Path) -> None:
    dumps, aborted = gloo_failing_job.run(way, tmp_path)
    assert aborted
    facts = explain_failed(dumps, overrun=aborted, world_size=gloo_failing_job.WORLD)
    assert [culprit.rank for culprit in facts.culprits] == [gloo_failing_job.WRONG], facts.evidence
    assert facts.kind == "collective-mismatch"
