"""Lines of Ray Train's log that state a worker's rank and run."""

import json
import os
from pathlib import Path

import pytest

from ray_sentinel.progress.discovery.environment import ToldRank
from ray_sentinel.progress.discovery.train_log import parse_words, read_words

WORKER = "01d724ebde98a2512f6fa164466d5a91cfde9c2b826ae9be2b6bb846"
# As written by Ray 2.60.
LINE = {
    "asctime": "2026-11-20 16:34:05,828",
    "levelname": "INFO",
    "message": "Setting up process group for: env:// [rank=3, world_size=8]",
    "filename": "config.py",
    "lineno": 115,
    "process": 31243,
    "job_id": "02000000",
    "worker_id": WORKER,
    "task_name": "execute._setup_torch_process_group",
    "run_name": "my-exp",
    "component": "worker",
    "world_rank": 3,
    "local_rank": 1,
    "node_rank": 1,
    "timestamp_ns": 1795192445828701557,
}


def lines(*changes: dict[str, object]) -> bytes:
    return b"".join(json.dumps({**LINE, **change}).encode() + b"\n" for change in changes)


def test_the_rank_and_the_run():
    assert parse_words(lines({}), 31243) == ToldRank(
        source="ray-train", job="my-exp", rank=3, local_rank=1, world_size=8
    )


def test_a_later_line_counts_and_keeps_the_size():
    data = lines({}, {"message": "step 3 of 9", "world_rank": 4})
    assert parse_words(data, 31243) == ToldRank(
        source="ray-train", job="my-exp", rank=4, local_rank=1, world_size=8
    )


@pytest.mark.parametrize(
    "change",
    [{"process": 1}, {"world_rank": -1}, {"world_rank": "3"}, {"run_name": ""}, {"run_name": None}],
)
def test_lines_that_say_nothing_of_this_rank(change):
    assert parse_words(lines(change), 31243) is None


def test_other_things_in_the_file():
    data = b"{torn\n\xff\xfe\n[]\n17\n" + lines({}) + b'{"process": 31243}\n{"asctime": "2026'
    assert parse_words(data, 31243).rank == 3
    assert parse_words(b"", 31243) is None


def test_found_by_where_the_output_goes(tmp_path: Path):
    logs = tmp_path / "session/logs"
    (logs / "train").mkdir(parents=True)
    folder = tmp_path / "proc/31243/fd"
    folder.mkdir(parents=True)
    proc = tmp_path / "proc"
    assert read_words(31243, proc) is None
    (folder / "2").symlink_to(logs / f"worker-{WORKER}-02000000-31243.err")
    assert read_words(31243, proc) is None
    (logs / "train" / f"ray-train-sys-worker-{WORKER}.log").write_bytes(lines({}))
    assert read_words(31243, proc) is None, "whose log it is, is not known"
    ids = f"Uid:{4 * f' {os.geteuid()}'}\nGid: 0 0 0 0\n"
    (folder.parent / "status").write_text(ids)
    assert read_words(31243, proc).rank == 3
    (folder / "2").unlink()
    (folder / "2").symlink_to("/dev/pts/0")
    assert read_words(31243, proc) is None
