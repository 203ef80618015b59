"""What the readers of all tools share."""

from __future__ import annotations

from ray_sentinel.evidence.stacks.readers.text import mark_main
from ray_sentinel.model.stacks import Frame, ThreadStack

THREADS = [
    ThreadStack(tid=7, name="a", frames=(Frame("f"),), active=True, holds_gil=True, state="R"),
    ThreadStack(tid=8, name="b", main=True, active=False, holds_gil=False, state="S"),
]


def test_one_thread_is_the_main_one_and_nothing_else_of_it_changes() -> None:
    first, second = mark_main(THREADS, 0)
    assert first == ThreadStack(
        tid=7, name="a", frames=(Frame("f"),), main=True, active=True, holds_gil=True, state="R"
    )
    assert second == ThreadStack(tid=8, name="b", active=False, holds_gil=False, state="S")
    assert mark_main(THREADS, 1) == tuple(THREADS)


def test_there_may_be_no_main_thread() -> None:
    assert [thread.main for thread in mark_main(THREADS, None)] == [False, False]
    assert mark_main([], None) == ()
