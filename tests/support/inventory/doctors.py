"""Facts about what can be wrong before a run: nodes as a test describes them go to the doctor."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import msgspec

from ray_sentinel.doctor.check import Check as DoctorCheck
from ray_sentinel.doctor.check import CheckResult, Cluster, Here
from ray_sentinel.doctor.checks.config_file import ConfigFileCheck
from ray_sentinel.doctor.examine import CheckReading, DoctorFindings
from ray_sentinel.doctor.judge import judge
from ray_sentinel.doctor.plan import RunPlan
from tests.support.inventory.row import Check

Seen = Mapping[str, Any]


def judged(
    check: DoctorCheck[Any], seen: Seen, plan: RunPlan | None = None, cluster: Cluster | None = None
) -> list[CheckResult]:
    """What the doctor says of nodes: host → facts."""
    looks = {
        host: (CheckReading(check=check.name, facts=msgspec.msgpack.encode(facts)),)
        for host, facts in seen.items()
        if facts is not None
    }
    return list(judge([check], plan or RunPlan(), DoctorFindings(looks=looks, cluster=cluster)))


def doctor(
    check: DoctorCheck[Any], bad: Seen, good: Seen, *says: str, plan: RunPlan | None = None
) -> Check:
    """The check complains of ``bad`` nodes in the words ``says``, and not of ``good`` ones."""

    def run(folder: Path) -> None:
        wrong = [one for one in judged(check, bad, plan) if one.outcome in ("failure", "warning")]
        told = " ".join(f"{one.seen} {one.remedy}" for one in wrong)
        assert wrong
        assert not [word for word in says if word not in told], told
        assert [one.outcome for one in judged(check, good, plan)] == ["ok"]

    return Check(f"doctor: {check.name}", run)


def looked(
    check: DoctorCheck[Any],
    plan: Callable[[Path], RunPlan],
    spoil: Callable[[Path], object],
    *says: str,
) -> Check:
    """The check inspects this machine: all is well before ``spoil``; after it, it complains."""

    def run(folder: Path) -> None:
        wanted = plan(folder)

        def results() -> list[CheckResult]:
            return judged(check, {"here": check.look(wanted, Here(host="here"))}, wanted)

        assert [one.outcome for one in results()] == ["ok"]
        spoil(folder)
        told = " ".join(f"{one.outcome} {one.seen} {one.remedy}" for one in results())
        assert "failure" in told or "warning" in told
        assert not [word for word in says if word not in told], told

    return Check(f"doctor: {check.name}", run)


GOOD_YAML = """\
elastic: {min_nodes: 2, max_nodes: 8}
scaling: {strategy: constant_batch, target_global_batch_size: 64}
checkpoint: {checkpoint_interval: 500, memory_snapshot_interval: 0}
training:
  lr: 1e-4
  batch_size: 4
rdzv_id: "my-job: 123"
"""


def config(good: str, bad: str, *says: str) -> Check:
    """The check complains of a training's YAML file with ``bad`` in place of ``good``."""

    def results(folder: Path, text: str) -> list[CheckResult]:
        (folder / "train.yaml").write_text(text)
        plan = RunPlan(config_file=str(folder / "train.yaml"))
        return judged(
            ConfigFileCheck(), {"here": ConfigFileCheck().look(plan, Here(host="here"))}, plan
        )

    def run(folder: Path) -> None:
        assert good in GOOD_YAML
        assert [one.outcome for one in results(folder, GOOD_YAML)] == ["ok"]
        (found, *_) = results(folder, GOOD_YAML.replace(good, bad))
        assert found.outcome in ("failure", "warning")
        told = f"{found.seen} {found.remedy}"
        assert not [word for word in says if word not in told], told

    return Check("doctor: config-file", run)
