"""Tracebacks: interleaved, chained, prefixed, wrapped by Ray."""

from __future__ import annotations

import pytest

from ray_sentinel.evidence.logs.lines.lines import parse_line
from ray_sentinel.evidence.logs.lines.tracebacks import (
    Traceback,
    first_cause,
    is_wrapper,
    logged_exception,
    parse_exception,
    read_traceback,
)


def read(text: str) -> Traceback:
    block = read_traceback([parse_line(line) for line in text.strip("\n").split("\n")], 0)
    assert block is not None
    return block


def test_plain() -> None:
    block = read(
        """
Traceback (most recent call last):
  File "a.py", line 3, in f
    g()
  File "b.py", line 7, in g
    raise ValueError("boom")
ValueError: boom
after
"""
    )
    assert [(r.kind, r.message, r.frame) for r in block.raised] == [
        ("ValueError", "boom", "b.py:7 g")
    ]
    assert block.lines == (0, 1, 2, 3, 4, 5)


def test_other_ranks_lines_in_between() -> None:
    block = read(
        """
[rank1]: Traceback (most recent call last):
[rank0]: Traceback (most recent call last):
[rank1]:   File "a.py", line 3, in f
[rank0]:   File "z.py", line 9, in z
[rank0]: KeyError: 'z'
[rank1]: ValueError: boom
"""
    )
    assert [r.text for r in block.raised] == ["ValueError: boom"]
    assert 1 not in block.lines


def test_a_chain_begins_with_the_cause() -> None:
    block = read(
        """
Traceback (most recent call last):
  File "a.py", line 3, in f
OSError: [Errno 28] No space left on device

The above exception was the direct cause of the following exception:

Traceback (most recent call last):
  File "b.py", line 4, in g
RuntimeError: save failed
"""
    )
    assert [r.kind for r in first_cause(block)] == ["OSError", "RuntimeError"]


def test_a_logger_that_prefixes_every_line() -> None:
    front = "ERROR 05-01 10:00:0{} [core.py:396] "
    lines = [
        "Traceback (most recent call last):",
        '  File "core.py", line 387, in run',
        "    x()",
        "ValueError: No available memory for the cache blocks.",
    ]
    block = read("\n".join(front.format(n) + line for n, line in enumerate(lines)))
    assert block.raised[0].kind == "ValueError"


def test_ray_names_the_remote_process() -> None:
    block = read(
        """
Traceback (most recent call last):
  File "driver.py", line 12, in <module>
ray.exceptions.RayTaskError(IndexError): ray::T.step() (pid=42, ip=10.0.0.7, actor_id=f2)
  File "/app/train.py", line 55, in step
    return batch[9]
IndexError: list index out of range
"""
    )
    assert is_wrapper(block.raised[0].kind)
    cause = next(first_cause(block))
    assert (cause.kind, cause.process.pid, cause.process.ip) == ("IndexError", 42, "10.0.0.7")


CREATION = (
    "The actor died because of an error raised in its creation task, ray::Env.__init__() "
    "(pid=12, ip=10.0.0.2, actor_id=ab, repr=<app.Env object at 0x7f>)"
)


@pytest.mark.parametrize(
    "head",
    [f"Exception raised in creation task: {CREATION}", f"ray.exceptions.RayActorError: {CREATION}"],
    ids=["worker", "driver"],
)
def test_the_constructor_of_an_actor_failed(head: str) -> None:
    block = read(
        f"""
{head}
  File "/app/env.py", line 31, in __init__
    self.net = load(path)
FileNotFoundError: [Errno 2] No such file or directory: 'a.xml'
"""
    )
    first = next(first_cause(block))
    assert first.kind == "FileNotFoundError"
    assert first.frame == "/app/env.py:31 __init__"
    assert (first.process.pid, first.process.ip) == (12, "10.0.0.2")


def test_a_report_alone_of_a_failed_constructor_is_no_traceback() -> None:
    report = f"ERROR actor_manager.py:507 -- Ray error, taking actor 1 out of service. {CREATION}"
    after = "INFO worker_set.py:1 -- 3 actors left"
    assert read_traceback([parse_line(report), parse_line(after)], 0) is None


def test_a_box_of_rich() -> None:
    block = read(
        """
╭──── Traceback (most recent call last) ────╮
│ ❱ 987 │   return self._apply(convert)      │
╰───────────────────────────────────────────╯
RuntimeError: CUDA error: out of memory
"""
    )
    assert block.raised[0].kind == "RuntimeError"


def test_cut_off() -> None:
    assert not read('Traceback (most recent call last):\n  File "a.py", line 3, in f').complete


def test_exception_lines() -> None:
    assert parse_exception("torch.OutOfMemoryError: CUDA out of memory.") == (
        "torch.OutOfMemoryError",
        "CUDA out of memory.",
    )
    assert parse_exception("KeyboardInterrupt") == ("KeyboardInterrupt", "")
    for text in ("hello: world", "INFO: x", "  ValueError: x", "", "step: 3"):
        assert parse_exception(text) is None


@pytest.mark.parametrize(
    "front",
    [
        "",
        "2026-11-01 10:00:02 ",
        "[2026-11-01T10:00:02.123Z] ",
        "2026-11-01 10:00:02,123 ERROR ",
        "2026-11-01 10:00:02 | CRITICAL | ",
        "ERROR: ",
    ],
)
def test_an_exception_that_a_logger_wrote(front: str) -> None:
    assert logged_exception(f"{front}ValueError: boom") == ("ValueError", "boom")


@pytest.mark.parametrize("front", ["INFO ", "2026-11-01 10:00:02 WARNING ", "retrying after "])
def test_an_exception_that_was_no_error(front: str) -> None:
    assert logged_exception(f"{front}ValueError: boom") is None


GROUP = """  + Exception Group Traceback (most recent call last):
  |   File "/app/rl.py", line 3, in <module>
  |     asyncio.run(main())
  | ExceptionGroup: unhandled errors in a TaskGroup (2 sub-exceptions)
  +-+---------------- 1 ----------------
    | Traceback (most recent call last):
    |   File "/app/rl.py", line 9, in rollout
    | ValueError: bad reward
    +---------------- 2 ----------------
    | Traceback (most recent call last):
    |   File "/app/rl.py", line 19, in rollout
    | asyncio.exceptions.CancelledError
    +------------------------------------
"""


@pytest.mark.parametrize("front", ["", "ERROR 11-27 10:30:12 [core.py:710] "])
def test_the_members_of_an_exception_group_are_read(front: str) -> None:
    block = read("".join(f"{front}{line}\n" for line in GROUP.splitlines()))
    assert [raised.kind for raised in block.raised] == [
        "ExceptionGroup",
        "ValueError",
        "asyncio.exceptions.CancelledError",
    ]
    told = next(first_cause(block))
    assert (told.kind, told.frame) == ("ValueError", "/app/rl.py:9 rollout")
