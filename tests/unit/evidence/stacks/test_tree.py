"""Classes, the merged tree and movement between looks."""

from __future__ import annotations

import pytest

from ray_sentinel.evidence.stacks import (
    awaiting_programs,
    classes,
    merge,
    movement,
    movements,
    render,
    who,
    woken,
)
from ray_sentinel.evidence.stacks.tree import TreeNode
from ray_sentinel.model.identity import ProcessId, RankId
from ray_sentinel.model.stacks import ChildWork, StackFact, Tool


def fact(
    rank: int,
    *places: str,
    waits: bool | None = None,
    tool: Tool = "py-spy",
    thread: str = "",
    operation: str = "",
) -> StackFact:
    return StackFact(
        process=ProcessId("n", rank),
        rank=RankId("j", 0, rank),
        signature=places,
        waits_for_others=waits,
        tool=tool,
        thread=thread,
        operation=operation,
        label="L",
    )


def test_who_does_not_wait_comes_first_and_the_rarer_before() -> None:
    found = classes(
        [fact(r, "m", "w", waits=True) for r in range(5)]
        + [fact(5, "m", "u"), fact(6, "m", "x", waits=False), fact(7, "m", "y", waits=False)]
        + [fact(8, "m", "y", waits=False)]
    )
    assert [(c.waits_for_others, c.count) for c in found] == [
        (False, 1), (False, 2), (None, 1), (True, 5),
    ]  # fmt: skip


def test_the_tree_counts_what_passes_through_each_place() -> None:
    found = classes([fact(0, "m", "a", "b"), fact(1, "m", "a"), fact(2, "m", "c")])
    root = merge(found)
    assert root.count == 3
    (m,) = root.children
    assert (m.place, m.count) == ("m", 3)
    assert {child.place: child.count for child in m.children} == {"a": 2, "c": 1}
    text = render(root, found)
    assert text.splitlines()[0].split() == ["3", "m"]
    assert "ranks" in text or "rank 0" in text


def test_a_very_deep_stack_is_drawn() -> None:
    found = classes([fact(0, *(f"f{i}" for i in range(5_000)))])
    assert render(merge(found), found).count("\n") == 5_000


def test_an_empty_tree() -> None:
    assert render(merge(()), ()) == ""
    assert merge(()) == TreeNode(place="")


def test_processes_without_a_stack_are_a_class_by_their_error() -> None:
    one, two = (StackFact(process=ProcessId("n", i), error=e) for i, e in ((1, "x"), (2, "y")))
    assert len(classes([one, two])) == 2


def test_who_names_host_and_pid_where_the_rank_is_unknown() -> None:
    unknown = [StackFact(process=ProcessId("a", i)) for i in range(20)]
    text = who([fact(3), fact(4), *unknown], limit=2)
    assert text == "ranks 3-4, a pid 0, a pid 1, and 18 more"


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        (("m (a:1)", "f (a:2)"), ("m (a:1)", "f (a:2)"), "stuck"),
        (("m (a:1)", "f (a:2)"), ("m (a:1)", "f (a:3)"), "in-place"),
        (("m (a:1)", "f (a:2)"), ("m (a:1)", "f (a:2)", "g (b:3)"), "in-place"),
        (("m (a:1)", "f (a:2)", "g (b:1)"), ("m (a:1)", "f (a:3)", "h (b:9)"), "in-place"),
        (("m (a:1)", "f (a:2)"), ("m (a:1)", "g (a:2)"), "moved"),
        (("m (a:1)", "f (a:2)"), ("m (a:9)", "f (a:2)", "g (b:1)", "h (c:1)"), "moved"),
    ],
)
def test_movement(before: tuple[str, ...], after: tuple[str, ...], expected: str) -> None:
    assert movement([fact(0, *before), fact(0, *after)]) == expected


def test_another_operation_at_the_same_place_is_movement() -> None:
    assert movement([fact(0, "m", operation="a"), fact(0, "m", operation="b")]) != "stuck"


def test_looks_of_different_tools_are_not_compared() -> None:
    looks = [fact(0, "m", "f"), fact(0, "x", "y", tool="gdb")]
    assert movement(looks) == "unknown"
    assert movement([*looks, fact(0, "m", "f")]) == "stuck"


def test_a_look_without_a_stack_tells_nothing() -> None:
    assert movement([fact(0, "m"), fact(0)]) == "unknown"
    assert movement([]) == "unknown"


def test_movements_of_all() -> None:
    rounds = [
        [fact(0, "m"), fact(1, "m", "f", "g", "h")],
        [fact(0, "m"), fact(1, "z"), fact(2, "q")],
    ]
    assert {p.pid: m for p, m in movements(rounds).items()} == {
        0: "stuck",
        1: "moved",
        2: "unknown",
    }


def test_a_thread_that_is_put_on_a_cpu_works_but_for_one_that_only_looks_again() -> None:
    def seen(pid: int, switches: int | None, **more: object) -> StackFact:
        return StackFact(process=ProcessId("n", pid), switches=switches, **more)  # type: ignore[arg-type]

    def look(more: int) -> list[StackFact]:
        return [
            seen(1, 5 + more, tid=9, activity="sleep"),
            seen(2, 5, tid=9, activity="sleep"),
            seen(3, 5 + more, tid=9, activity="lock-wait"),
            seen(4, 5 + more, tid=4, activity="sleep"),
            seen(5, None, tid=9, activity="sleep"),
            seen(6, 5 + more, tid=9 + more, activity="sleep"),
            seen(7, 5 + more, tid=9, activity="input-wait"),
            loads(8, more, more * 0.002, {50: 3.0}),
            loads(13, more, more * 0.2, {50: 3.0}),
            loads(10, more, more * 0.002, {50: 3.0 + more}),
            loads(11, more, more * 0.002, {50: 3.0, 51 + more: 0.0}),
            loads(12, more, more * 0.002, None),
            loads(14, more, more * 0.002, {50: 3.0}, waits_for=None),
            loads(15, more, more * 0.002, {50: 3.0}, switches=3),
            loads(16, more, more * 0.002, {50: 3.0}, waits_for=3.0),
        ]

    def loads(
        pid: int,
        at: int,
        ran_itself: float,
        ran: dict[int, float] | None,
        *,
        waits_for: float | None = 1.0,
        switches: int = 2,
    ) -> StackFact:
        place = "_try_get_data (torch/utils/data/dataloader.py:1291)"
        return seen(
            pid,
            5 + at * switches,
            tid=9,
            at=float(at),
            activity="input-wait",
            signature=("train (rl.py:9)", place),
            ran=ran_itself,
            children=None if ran is None else ChildWork(float(at), ran),
            wakes_at=None if waits_for is None else at + waits_for,
        )

    woke = {process.pid for process in woken([look(0), look(1)])}
    assert woke == {1, 7, 10, 11, 12, 13, 14, 15, 16}


def test_of_the_programs_below_coroutines_the_old_ones_are_not_awaited() -> None:
    ran, ages = {50: 3.0, 51: 7.0, 52: 1.0}, {50: 900.0, 51: 4.0}
    seen = [
        StackFact(process=ProcessId("n", pid), children=work)
        for pid, work in enumerate([ChildWork(10.0, ran, ages), ChildWork(10.0, ran), None])
    ]
    some, others, none = (fact.children for fact in awaiting_programs(seen, 5.0))
    assert some is not None
    assert some.ran == {51: 7.0}
    assert others == seen[1].children
    assert none is None
    assert [fact.children for fact in awaiting_programs(seen[:1], 3.0)] == [None]


def test_who_waits_for_a_child_moves_as_long_as_that_works() -> None:
    def look(pid: int, at: float, ran: dict[int, float] | None) -> StackFact:
        children = None if ran is None else ChildWork(at, ran)
        return StackFact(process=ProcessId("n", pid), tid=pid, children=children)

    rounds = [
        [
            look(1, 10.0, {50: 3.0, 51: 7.0}),
            look(2, 10.0, {50: 3.0, 51: 7.0, 52: 0.0}),
            look(3, 10.0, {50: 3.0, 51: 7.0}),
            look(4, 10.0, None),
            look(5, 10.0, {50: 3.0}),
        ],
        [
            look(1, 11.0, {50: 3.0, 51: 7.02}),
            look(2, 11.0, {50: 3.008, 51: 7.008, 52: 0.008}),
            look(3, 11.0, {50: 3.0, 59: 9.0}),
            look(4, 11.0, {50: 3.0}),
            look(5, 11.0, {53: 0.0}),
        ],
    ]
    assert {process.pid for process in woken(rounds)} == {1, 5}, "5 has begun another"
