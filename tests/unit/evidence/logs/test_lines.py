# ruff: noqa: E501 - log lines are as long as they are
"""Launcher prefixes, escapes, and Ray's folded lines."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ray_sentinel.evidence.logs.lines.lines import Origin, named_process, parse_line, strip_escapes


@pytest.mark.parametrize(
    ("raw", "text", "origin"),
    [
        (
            "(TrainerActor pid=12, ip=10.0.0.2) hi",
            "hi",
            {"actor": "TrainerActor", "pid": 12, "ip": "10.0.0.2"},
        ),
        ("(train_fn(rank=3) pid=12) hi", "hi", {"actor": "train_fn(rank=3)", "pid": 12}),
        ("(create_colocated_worker_cls.<locals>.WorkerDict pid=7) hi", "hi", {"pid": 7}),
        ("(PolicyWorker[rank=3] pid=12, ip=10.0.0.2) hi", "hi", {"rank": 3, "pid": 12}),
        (
            "(Generation pid=1, ip=10.0.0.1) (EngineCore_DP0 pid=22) (RayWorkerWrapper pid=33) hi",
            "hi",
            {"actor": "RayWorkerWrapper", "pid": 33, "ip": "10.0.0.1"},
        ),
        ("(pid=77, ip=10.0.0.9) hi", "hi", {"pid": 77, "ip": "10.0.0.9"}),
        ("(raylet, ip=10.0.0.9) hi", "hi", {"actor": "raylet", "ip": "10.0.0.9"}),
        ("[rank3]: hi", "hi", {"rank": 3}),
        ("[rank3]:[E307 10:00:00 x.cpp:1] hi", "[E307 10:00:00 x.cpp:1] hi", {"rank": 3}),
        ("[default0]:[rank12]:boom", "boom", {"local_rank": 0, "rank": 12}),
        ("[1,3]<stderr>:hi", "hi", {"rank": 3}),
        ("  3: hi", "hi", {"rank": 3}),
        ("10.0.0.2: hi", "hi", {"host": "10.0.0.2"}),
        ("worker-1: hi", "hi", {"host": "worker-1"}),
        ("worker-1  | hi", "hi", {"host": "worker-1"}),
        ("[pod/train-0/main] hi", "hi", {"host": "train-0"}),
        ("2025-01-02T10:00:00.123Z stdout F [rank1]: hi", "hi", {"rank": 1}),
        ("n1:10:20 [5] NCCL WARN x", "NCCL WARN x", {"host": "n1", "pid": 10, "gpu": "5"}),
        ("[PG 0 (default_pg) Rank 12] boom", "[PG 0 (default_pg) Rank 12] boom", {"rank": 12}),
        ("Apr 25 19:05:01 n-7.lan kernel: [ 7.5] hi", "kernel: [ 7.5] hi", {"host": "n-7.lan"}),
        ("2025-04-25T19:05:01.123456-04:00 n7 kernel: hi", "kernel: hi", {"host": "n7"}),
        ("Apr 25 19:05:01 n7 sshd[3]: hi", "Apr 25 19:05:01 n7 sshd[3]: hi", {}),
        ("plain text", "plain text", {}),
        ("12:30:01 INFO x", "12:30:01 INFO x", {}),
        ("ValueError: 3", "ValueError: 3", {}),
        ("[INFO] x", "[INFO] x", {}),
    ],
)
def test_prefixes(raw: str, text: str, origin: dict[str, object]) -> None:
    line = parse_line(raw)
    assert line.text == text
    for key, value in origin.items():
        assert getattr(line.origin, key) == value
    if not origin:
        assert line.origin == Origin()


def test_ray_folds_lines_of_many_workers() -> None:
    line = parse_line(
        "(A pid=1) boom [repeated 7x across cluster] (Ray deduplicates logs by default. Set "
        "RAY_DEDUP_LOGS=0 to disable log deduplication, or see https://docs.ray.io for more options.)"
    )
    assert (line.text, line.repeated) == ("boom", 7)
    assert parse_line("(A pid=1) boom\x1b[32m [repeated 3x across cluster]\x1b[0m").repeated == 3


def test_escapes_go() -> None:
    assert strip_escapes("\x1b[31mred\x1b[0m \x1b]0;title\x07x\r\n") == "red x"
    assert "\x1b" not in parse_line("\x1b]8;;http://evil\x1b\\click\x1b]8;;\x1b\\").text


def test_the_process_that_a_message_names() -> None:
    assert named_process("ray::T.step() (pid=4, ip=10.0.0.7, actor_id=f2)") == Origin(
        pid=4, ip="10.0.0.7"
    )
    assert named_process("nothing") == Origin()


@given(st.text(max_size=300))
def test_any_text_is_a_line(raw: str) -> None:
    line = parse_line(raw)
    assert line.repeated >= 1
    assert len(line.text) <= len(raw)


@pytest.mark.parametrize(
    ("name", "rank"),
    [
        ("VllmWorker rank=7", 7),
        ("Worker_TP3", 3),
        ("Worker_TP3_EP3", 3),
        ("Worker_PP1_TP3", None),
        ("Worker_DP1_TP0", None),
    ],
)
def test_vllm_names_its_worker(name: str, rank: int | None) -> None:
    assert parse_line(f"({name} pid=410) ERROR boom").origin.rank == rank


@pytest.mark.parametrize(
    ("raw", "rank"),
    [
        ("2025-10-10 10:08:12 rank=0 ERROR upload failed", 0),
        ("2025-10-10 10:08:12,111 INFO host=n1 rank=7 step=4 msg=saved", 7),
        ('time=2025-10-10T10:08:12Z level=error rank=3 msg="boom"', 3),
        ("2025-10-10 10:08:12 ERROR rank=3 exited with code 1", None),
        ("2025-10-10 10:08:12 INFO adapter rank=16 alpha=32", None),
        ("2025-10-10 10:08:12 INFO peft config: rank=16 msg=ready", None),
    ],
)
def test_a_rank_among_the_fields_of_a_logger(raw: str, rank: int | None) -> None:
    assert parse_line(raw).origin.rank == rank
