"""The Ray Train callback with real workers: each attaches under its rank before it trains."""

from __future__ import annotations

from pathlib import Path

import pytest
import ray

pytestmark = pytest.mark.integration


def train() -> None:
    """In a worker: leaves what its record says."""
    import os

    import ray.train

    from ray_sentinel.progress.reader import RecordReader

    reader = RecordReader([Path(os.environ["RAY_SENTINEL_RECORD_DIR"])])
    (identity,) = [one.identity for one in reader.scan() if one.header.pid == os.getpid()]
    reader.close()
    text = f"{identity.job} {identity.rank} {identity.world_size}" if identity else ""
    folder = Path(os.environ["TOLD_FOLDER"])
    (folder / str(ray.train.get_context().get_world_rank())).write_text(text)


def test_every_worker_attaches_under_its_rank(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from ray.train import RunConfig, ScalingConfig
    from ray.train.v2.api.data_parallel_trainer import DataParallelTrainer

    from ray_sentinel.frameworks.ray_train import RayTrainCallback

    told, records = tmp_path / "told", tmp_path / "records"
    told.mkdir()
    records.mkdir(mode=0o700)
    variables = {
        "TOLD_FOLDER": str(told),
        "RAY_SENTINEL_RECORD_DIR": str(records),
        "RAY_TRAIN_V2_ENABLED": "1",
    }
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    # Where a token lies about, ray.init() would leave its use in the environment of later tests.
    monkeypatch.setenv("RAY_AUTH_MODE", "disabled")
    ray.init("local", num_cpus=3, include_dashboard=False, runtime_env={"env_vars": variables})
    try:
        DataParallelTrainer(
            train,
            scaling_config=ScalingConfig(num_workers=2),
            run_config=RunConfig(
                name="trial", storage_path=str(tmp_path), callbacks=[RayTrainCallback("ray-job")]
            ),
        ).fit()
    finally:
        ray.shutdown()
    found = {path.name: path.read_text() for path in told.iterdir()}
    assert found == {"0": "ray-job 0 2", "1": "ray-job 1 2"}
