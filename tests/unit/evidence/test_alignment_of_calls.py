"""Whose call is not the one that was due, by the calls of those who should make the same."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec
import pytest

from ray_sentinel.evidence.alignment import (
    Called,
    CallSequence,
    Differing,
    after_same_calls,
    contradicting,
    differing,
    had_before,
    order_votes,
    out_of_habit,
    strayed,
    unlike_equals,
)


def calls(made: str, operation: str = "op", first: int = 0) -> list[Called]:
    """One call for each letter, by processes from ``first`` on."""
    return [Called(first + n, operation, call, "alike") for n, call in enumerate(made)]


def names(found: list[Differing]) -> list[int]:
    return [one.process for one in found]


@pytest.mark.parametrize(
    ("made", "odd"),
    [("aaaa", []), ("aaab", [3]), ("baba", []), ("aabc", []), ("aaabc", [3, 4]), ("ab", [])],
)
def test_more_than_half_of_the_members_say_what_was_due(made: str, odd: list[int]) -> None:
    found = differing(calls(made))
    assert names(found) == odd
    for one in found:
        assert (len(one.usual), one.asked, one.by) == (made.count("a"), len(made), "members")


@pytest.mark.parametrize(
    ("like", "odd"), [(["aa"], [1]), (["a"], []), (["ab"], []), (["aa", "bb"], []), (["cc"], [])]
)
def test_like_groups_that_agree_decide_between_two(like: list[str], odd: list[int]) -> None:
    others = [one for n, made in enumerate(like) for one in calls(made, f"like {n}", 10 * n + 10)]
    assert names(differing([*calls("ab"), *others])) == odd


def test_ballots_are_asked_in_turn_and_only_where_members_cannot_say() -> None:
    asked = []

    def nobody(made: Mapping[int, Called]) -> list[Differing]:
        asked.append([*made])
        return []

    def the_second(made: Mapping[int, Called]) -> list[Differing]:
        return [Differing(1, "op", (7, 8), 2, "equals")]

    assert names(differing(calls("ab"), nobody, the_second)) == [1]
    assert asked == [[0, 1]]
    assert names(differing(calls("aab"), nobody, the_second)) == [2]
    assert asked == [[0, 1]]


@pytest.mark.parametrize(
    ("votes", "least", "odd"),
    [("aa", 2, [1]), ("a", 2, []), ("a", 1, [1]), ("ac", 1, []), ("", 1, []), ("ccc", 2, [0, 1])],
)
def test_equals_outvote_a_call(votes: str, least: int, odd: list[int]) -> None:
    assert names(unlike_equals(calls("ab"), lambda _: dict(enumerate(votes, 10)), least)) == odd


@pytest.mark.parametrize(
    ("counts", "odd"),
    [
        ([(1, 2), (1, 2), (1, 3)], [2]),
        ([(1, 2), (1, 3)], []),
        ([(1, 2), (1, 2), (1, 3), (2, 2)], []),
        ([(1, 2), (1, 2)], []),
        ([], []),
    ],
)
def test_who_came_after_other_calls(counts: list[tuple[int, int]], odd: list[int]) -> None:
    assert strayed({n: dict(enumerate(of)) for n, of in enumerate(counts)})[0] == odd


class Recorded(msgspec.Struct, frozen=True):
    call: str
    record: int = 0
    numels: tuple[tuple[int, ...], tuple[int, ...]] = ((1,), (1,))

    def signature(self) -> str:
        return self.call


def numbered(made: str) -> dict[int, Recorded]:
    return {n: Recorded(call) for n, call in enumerate(made, 1)}


def test_those_that_completed_other_calls_contradict_those_that_wait() -> None:
    done = {5: numbered("ab"), 6: numbered("aa"), 7: {1: Recorded("a")}}
    assert contradicting(2, [numbered("aa")], done) == [5]
    assert contradicting(2, [numbered("aa"), numbered("ab")], done) == [5, 6, 7]
    assert contradicting(2, [], done) == []


def sequence(order: str) -> CallSequence[Recorded]:
    """Calls of counters A and B in this order, as "AAB"."""
    made, reached = {}, {"A": 0, "B": 0}
    for record, counter in enumerate(order):
        reached[counter] += 1
        made[counter, reached[counter]] = Recorded(counter, record)
    return CallSequence(made, reached)


def test_who_made_a_call_says_which_came_first() -> None:
    voters = [sequence(order) for order in ("AB", "BA", "A", "B", "")]
    assert order_votes(("A", 1), ("B", 1), voters) == [True, False, True, False]
    assert order_votes(("A", 2), ("B", 1), voters) == [False, False, False]


def test_how_far_one_counter_was_at_a_call_by_another() -> None:
    assert sequence("AABAB").reached_before("A", ("B", 2)) == 2
    assert sequence("AABAB").reached_before("A", ("B", 3)) == 3
    assert sequence("AABAB").reached_before("A", ("B", 1)) == 0
    assert sequence("AABAB").reached_before("A", ("B", 9)) is None


def of_one_counter(made: str) -> CallSequence[Recorded]:
    return CallSequence(
        {("A", n): Recorded(call, n, ((ord(call),), ())) for n, call in enumerate(made, 1)}, {}
    )


@pytest.mark.parametrize(
    ("mine", "voters", "odd"),
    [
        ("xxxy", ["xxxzx", "xxxzx"], []),  # A call of its own stage alone, perhaps.
        ("xxxyx", ["xxxzx", "xxxzx"], [0]),
        ("xxxyz", ["xxxzx", "xxxzx"], []),
        ("xxxy", ["xxxzxy", "xxxzxy"], [0]),
        ("zzzzzxxxy", ["zzzzzxxxz", "zzzzzxxxz"], [0]),
        ("xxxyx", ["xxxzx"], []),
        ("xxxyx", ["xwxzx", "xwxzx"], []),
    ],
)
def test_groups_that_made_the_same_calls_before(
    mine: str, voters: list[str], odd: list[int]
) -> None:
    number = mine.index("y") + 1
    sequences = dict(enumerate(map(of_one_counter, [mine, mine.replace("y", "z"), *voters])))
    asked = range(2, 2 + len(voters))
    found = after_same_calls(
        dict(enumerate(calls("yz"))), ("A", number), asked, sequences.__getitem__
    )
    assert names(found) == odd


def test_a_habit_needs_some_calls() -> None:
    usual = [Recorded("a")] * 5
    assert had_before(Recorded("a"), usual) is True
    assert had_before(Recorded("b"), usual) is False
    assert had_before(Recorded("a"), usual[1:]) is None
    assert had_before(Recorded("a", numels=((2,), (1,))), usual) is False


@pytest.mark.parametrize(
    ("habits", "mute", "odd"),
    [
        ({0: [True], 1: [True, False]}, {2}, 1),
        ({0: [True], 1: [False, True]}, {2, 3}, 1),
        ({0: [None], 1: [False]}, {2, 3}, None),
        ({0: [False], 1: [False]}, {2}, None),
        ({0: [True], 1: [True]}, {2}, 2),
        ({0: [True], 1: [True]}, {2, 3}, None),
        ({0: [True], 1: [None]}, {2}, None),
    ],
)
def test_one_that_called_what_it_never_calls(
    habits: dict[int, list[bool | None]], mute: set[int], odd: int | None
) -> None:
    assert out_of_habit(habits, mute) == odd
