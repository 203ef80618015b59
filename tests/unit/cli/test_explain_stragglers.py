"""``ray-sentinel explain stragglers``: what is printed, exit codes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from ray_sentinel.cli.main import main


def dumps(folder: Path, slow: float) -> None:
    """Four ranks, two collectives a step; rank 2 needs ``slow`` seconds where others need 1."""
    for rank in range(4):
        entries = [
            {
                "profiling_name": "gloo:all_reduce",
                "process_group": ["0", "default_pg"],
                "collective_seq_id": number,
                "record_id": number,
                "is_p2p": False,
                "time_created_ns": int(
                    (1.7e9 + number * slow + (slow if rank == 2 else 1.0) + 0.01 * (number % 3))
                    * 1e9
                ),
                "state": "completed",
            }
            for number in range(40)
        ]
        data = {"version": "2.10", "entries": entries}
        (folder / f"fr_{rank}.json").write_text(json.dumps(data))


def test_the_slow_rank_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    dumps(tmp_path, 1.5)
    assert main(["explain", "stragglers", str(tmp_path), "--json"]) == 1
    found = json.loads(capsys.readouterr().out)
    assert found["culprit_ranks"] == [2]
    assert found["kind"] == "slow-rank"
    assert found["cost_percent"] == pytest.approx(33.3, abs=2)


def test_an_even_job_is_exit_code_0(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    dumps(tmp_path, 1.0)
    assert main(["explain", "stragglers", str(tmp_path)]) == 0
    assert "nobody is named" in capsys.readouterr().out


def test_no_dump_is_exit_code_2(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "fr_0.json").write_text("nonsense")
    assert main(["explain", "stragglers", str(tmp_path)]) == 2
    assert "fr_0.json" in capsys.readouterr().err
