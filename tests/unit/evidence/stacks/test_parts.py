"""One text that holds the dumps of several ranks, taken apart."""

from __future__ import annotations

import pytest

from ray_sentinel.evidence.stacks.readers.parts import TextPart, parts
from ray_sentinel.evidence.stacks.readers.prefixes import is_folded, prefix_fields

DUMP = (
    'Process {pid}: python train.py\nThread {pid} (idle): "MainThread"\n    step (train.py:{pid})\n'
)


def dump(pid: int) -> str:
    return DUMP.format(pid=pid)


def found(text: str) -> list[tuple[int | None, str, int, str]]:
    said = parts(text, lambda part: "Thread" in part and "step" in part)
    return [(part.rank, part.host, part.pid, part.name) for part in said]


def prefixed(*prefixes: str) -> str:
    """A dump behind each of the prefixes, the lines alternating."""
    lines = [[f"{p}{x}" for x in dump(i).splitlines()] for i, p in enumerate(prefixes, 40)]
    return "\n".join(line for row in zip(*lines, strict=True) for line in row)


@pytest.mark.parametrize(
    ("one", "other", "expected"),
    [
        ("[rank0]: ", "[rank3]: ", [(0, "", 0, "rank 0"), (3, "", 0, "rank 3")]),
        ("[default0]:", "[default1]:",
         [(None, "", 0, "local rank 0"), (None, "", 0, "local rank 1")]),
        ("0: ", "1: ", [(None, "", 0, "task 0"), (None, "", 0, "task 1")]),
        ("[1,0]<stdout>:", "[1,1]<stdout>:", [(None, "", 0, "task 0"), (None, "", 0, "task 1")]),
        ("node01: ", "node02: ", [(None, "node01", 0, ""), (None, "node02", 0, "")]),
        ("(W pid=7, ip=10.0.0.1) ", "(W pid=8, ip=10.0.0.1) ",
         [(None, "10.0.0.1", 7, ""), (None, "10.0.0.1", 8, "")]),
        ("worker-1  | ", "worker-2  | ", [(None, "worker-1", 0, ""), (None, "worker-2", 0, "")]),
        ("[10/29 11:25:58.1] n7 [rank=0] || ", "[10/29 11:25:58.1] n7 [rank=1] || ",
         [(0, "n7", 0, "rank 0"), (1, "n7", 0, "rank 1")]),
    ],
)  # fmt: skip
def test_prefixes_tell_whose_a_line_is(
    one: str, other: str, expected: list[tuple[int | None, str, int, str]]
) -> None:
    assert found(prefixed(one, other)) == expected


@pytest.mark.parametrize(
    "head",
    ["# rank: {}", "=== rank {} (node01) ===", "##### rank {}", "==rank={}==", "Rank {}:",
     "# global rank {} on node07, pid 40"],
)  # fmt: skip
def test_lines_between_name_ranks(head: str) -> None:
    text = "".join(f"{head.format(rank)}\n{dump(40 + rank)}" for rank in (0, 3))
    assert found(text) == [(0, "", 0, "rank 0"), (3, "", 0, "rank 3")]


def test_stacks_before_the_first_head_are_nobodys() -> None:
    assert found(f"{dump(40)}# rank: 1\n{dump(41)}") == [(None, "", 0, ""), (1, "", 0, "rank 1")]


def test_two_stacks_of_a_rank_stay_together() -> None:
    text = "".join(f"# rank: {rank}\n{dump(40 + rank)}" for rank in (0, 1, 0, 1))
    assert found(text) == [(0, "", 0, "rank 0"), (1, "", 0, "rank 1")]


@pytest.mark.parametrize(
    "text",
    [
        dump(40),
        prefixed("[rank3]: "),
        # Words of a log, not heads.
        f"rank 0 joined the group\nrank 1 joined the group\n{dump(40)}",
        f"# local rank: 0\n{dump(40)}# local rank: 1\n{dump(41)}",
        # What debuggers say of variables.
        f"{dump(40)}            rank: 0\n{dump(41)}            rank: 1\n{dump(42)}",
        f"rank = 0\n{dump(40)}rank = 1\n{dump(41)}",
        # Numbered lines.
        "\n".join(f"{n}: {line}" for n, line in enumerate(dump(40).splitlines() * 4)),
    ],
)
def test_the_text_of_one_stays_whole(text: str) -> None:
    assert parts(text, lambda part: "Thread" in part) == (TextPart(text),)


def test_torch_writes_its_rank_before_some_lines_only() -> None:
    text = prefixed("[default0]:", "[default1]:") + "\n[default1]:[rank9]: ValueError"
    assert found(text) == [(None, "", 0, "local rank 0"), (9, "", 0, "rank 9")]


def test_numbers_of_the_text_do_not_name_its_writer() -> None:
    assert prefix_fields("[rank3]: 12: text") == {"rank": "3"}
    assert prefix_fields("node07: 3: text") == {"host": "node07", "task": "3"}


def test_frames_that_ray_printed_once_for_several_workers() -> None:
    frame = "(W pid=7)     all_reduce (torch/distributed/distributed_c10d.py:2806)"
    assert is_folded(f"{frame} [repeated 3x across cluster]")
    assert not is_folded(f"{frame}\n(W pid=8) loss 2.1 [repeated 3x across cluster]")
