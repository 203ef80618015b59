"""Whose calls are not those of its equals.

Equals run one program, so they make one sequence of calls, and each is at some point of it. Members
of a group make the same call under the same number, and groups of one kind make the same calls.
So who made a wrong call is found by what is usual, and what is usual is what more than half of
those called who can say: the members themselves, groups of the same kind, equals.

What a tool tells is made ``Called``, ``CallSequence`` or counts of calls by who reads it, who also
says who are equals, and puts the answer into words.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Iterable, Mapping, Sequence
from itertools import combinations, pairwise
from typing import Any, Generic, Literal, Protocol, TypeVar

import msgspec

from ray_sentinel.evidence.minority import half, most_odd, usual

Process = TypeVar("Process")
Key = TypeVar("Key", bound=Hashable)
Stand = tuple[Hashable, frozenset[tuple[Key, int]]]
"""Who its equals are, and how many calls of each kind a process has made."""
MOST_STANDS = 256
"""Most different stands that are compared in pairs; if there are more, nobody is the exception."""


class RecordedCall(Protocol):
    """One call as its process recorded it."""

    @property
    def record(self) -> int:
        """Its place in the process's own order of calls."""

    @property
    def numels(self) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Number of elements of each input and of each output."""

    def signature(self) -> Hashable:
        """What must be the same on all members."""


Recorded = TypeVar("Recorded", bound=RecordedCall)
HABIT = 5
"""Least number of earlier calls that show what a process does in each step."""
_LEAST_USUAL = 2
"""Least number of equals that must agree: a single one may itself be wrong."""
_CALLS_BEFORE = 3
"""Number of preceding calls that must be equal too for two processes to be at one place in the
program."""

Numbered = tuple[Any, int]
"""A counter of calls, and a number that it gave."""


def odd_ones(stands: Mapping[Stand[Key], Sequence[Process]]) -> list[Process]:
    """The processes without which all equals lie on one sequence of calls; empty if that is
    ambiguous.

    A process that has made more calls of one kind than an equal, and fewer of another, made a
    different call.
    """
    if in_order(stands) or len(stands) > MOST_STANDS:
        return []
    conflicts = _conflicts(stands)
    odd: list[Process] = []
    while any(conflicts.values()):
        against = {s: sum(len(stands[o]) for o in others) for s, others in conflicts.items()}
        most = max(against.values())
        worst = [stand for stand, count in against.items() if count == most]
        if any(other in worst for stand in worst for other in conflicts[stand]):
            return []
        for stand in worst:
            odd += stands[stand]
            for other in conflicts.pop(stand):
                conflicts.get(other, set()).discard(stand)
    return odd


def in_order(stands: Iterable[Stand[Key]]) -> bool:
    """Whether those with the same equals and counters have gone through the same calls, some of
    them farther; False if other counters would have to be compared, too."""
    alike: dict[Hashable, list[dict[Key, int]]] = {}
    for role, counts in stands:
        alike.setdefault(role, []).append(dict(counts))
    for found in alike.values():
        if any(counts.keys() != found[0].keys() for counts in found):
            return False
        found.sort(key=lambda counts: sum(counts.values()))
        if any(less[key] > more[key] for less, more in pairwise(found) for key in less):
            return False
    return True


def _conflicts(stands: Iterable[Stand[Key]]) -> dict[Stand[Key], set[Stand[Key]]]:
    """By each stand the equals that cannot lie on one sequence of calls with it."""
    made = {stand: dict(stand[1]) for stand in stands}
    found: dict[Stand[Key], set[Stand[Key]]] = {stand: set() for stand in made}
    for one, other in combinations(made, 2):
        if one[0] == other[0] and all(_apart(made[one], made[other])):
            found[one].add(other)
            found[other].add(one)
    return found


def _apart(mine: Mapping[Key, int], theirs: Mapping[Key, int]) -> tuple[list[Key], list[Key]]:
    """The kinds of calls of which the first has made more than the second, and fewer."""
    both = [key for key in mine if key in theirs]
    return (
        [key for key in both if mine[key] > theirs[key]],
        [key for key in both if mine[key] < theirs[key]],
    )


class Called(msgspec.Struct, frozen=True):
    """What one process called as one operation."""

    process: int
    operation: Hashable
    """Its members must all make the same call."""
    call: Hashable
    """What must be the same: operation, sizes, data types."""
    like: Hashable = None
    """What the operation has in common with those of other groups that are the same call too; None
    if there are none."""


class Differing(msgspec.Struct, frozen=True):
    """A process whose call differs from the usual one, and who says what is usual."""

    process: int
    operation: Any
    """The operation of its ``Called``."""
    usual: tuple[int, ...]
    """Processes that made the usual call."""
    asked: int
    """How many processes were asked for their call."""
    by: Literal["members", "equals", "like groups"]
    """Who was asked. ``like groups``: their members that had made the same calls just before."""


Ballot = Callable[[Mapping[int, Called]], list[Differing]]
"""Whose call differs, of calls (by process) among which none is usual, as far as others can say."""


def differing(calls: Iterable[Called], *ballots: Ballot) -> list[Differing]:
    """Those whose call differs from the usual one of its operation.

    Where no call is that of more than half of the members, other operations among ``calls`` that
    are like it decide, then ``ballots``, in this order. Nobody is named where none of them can.
    """
    operations: dict[Hashable, dict[int, Called]] = {}
    for one in calls:
        operations.setdefault(one.operation, {})[one.process] = one
    found: list[Differing] = []
    for made in operations.values():
        if len({one.call for one in made.values()}) < 2:
            continue
        due = usual(one.call for one in made.values())
        if due is None and (due := _backed(made, operations.values())) is None:
            found += next(filter(None, (ballot(made) for ballot in ballots)), [])
            continue
        right = tuple(process for process, one in made.items() if one.call == due)
        found += [
            Differing(one.process, one.operation, right, len(made), "members")
            for one in made.values()
            if one.call != due
        ]
    return found


def _backed(made: Mapping[int, Called], operations: Iterable[Mapping[int, Called]]) -> Hashable:
    """The one of these calls on which all members of a like group agree; None if there is none, or
    more than one."""
    like = next(iter(made.values())).like
    agreed: set[Hashable] = set()
    for other in operations if like is not None else ():
        if len(other) > 1 and next(iter(other.values())).like == like:
            voices = {one.call for one in other.values()}
            agreed |= voices if len(voices) == 1 else set()
    backed = agreed & {one.call for one in made.values()}
    return backed.pop() if len(backed) == 1 else None


def unlike_equals(
    calls: Iterable[Called], votes: Callable[[Called], Mapping[int, Hashable]], least: int
) -> list[Differing]:
    """Those whose call differs from that of more than half of their equals.

    ``votes`` returns what the equals of a process called in its place (equal → call); fewer than
    ``least`` of them decide nothing.
    """
    found = []
    for one in calls:
        made = votes(one)
        due = usual(made.values()) if len(made) >= least else None
        if due is not None and due != one.call:
            right = tuple(other for other, call in made.items() if call == due)
            found.append(Differing(one.process, one.operation, right, len(made), "equals"))
    return found


def differ(calls: Iterable[RecordedCall]) -> bool:
    """Whether these calls, which should be one, are not all the same."""
    return len({call.signature() for call in calls}) > 1


def contradicting(
    number: int,
    waiting: Iterable[Mapping[int, RecordedCall]],
    done: Mapping[int, Mapping[int, RecordedCall]],
) -> list[int]:
    """Those of ``done`` (process → its calls in a group, by number) that have completed a number
    with another call than those that wait made, under that number or a later one.

    All of them, if the calls of those that wait differ.
    """
    made = [*waiting]
    if differ(calls[number] for calls in made if number in calls):
        return [*done]
    later = [(n, call.signature()) for calls in made for n, call in calls.items() if n >= number]
    return [
        process
        for process, calls in done.items()
        if any(n in calls and calls[n].signature() != call for n, call in later)
    ]


def strayed(counts: Mapping[int, Mapping[Any, int]]) -> tuple[list[int], list[int]]:
    """Those equals that came to a common call after more, or fewer, other calls than usual, and
    those that came as usual; nobody where it is not clear who is usual.

    ``counts`` are how many calls each had made by each counter.
    """
    known = set.intersection(*({*path} for path in counts.values())) if counts else set()
    alike: dict[Hashable, list[int]] = {}
    for process, path in counts.items():
        alike.setdefault(frozenset((key, path[key]) for key in known), []).append(process)
    right = max(alike.values(), key=len, default=[])
    odd = [process for same in alike.values() if same is not right for process in same]
    if len(odd) > most_odd(len(counts)) or len(right) < _LEAST_USUAL:
        return [], right
    return odd, right


class CallSequence(Generic[Recorded]):
    """The calls of one process, as far as they are known.

    ``made`` are its calls; ``reached`` are the numbers of the last calls by each counter, those
    that are not in ``made`` included.
    """

    def __init__(
        self, made: Mapping[Numbered, Recorded], reached: Mapping[Any, int | None]
    ) -> None:
        self._made = made
        self._reached = reached
        self._of: dict[Hashable, dict[int, Hashable]] = {}

    def get(self, at: Numbered) -> Recorded | None:
        """The call under a number; None if it is not known."""
        return self._made.get(at)

    def call(self, at: Numbered) -> Hashable:
        """What was called under a number; None if it is not known."""
        made = self._made.get(at)
        return None if made is None else made.signature()

    def of(self, counter: Hashable) -> dict[int, Hashable]:
        """All that was called by one counter, by number."""
        if counter not in self._of:
            made = self._made.items()
            self._of[counter] = {n: call.signature() for (of, n), call in made if of == counter}
        return self._of[counter]

    def lacks(self, at: Numbered) -> bool:
        """Whether it is known that the process has not come to a call."""
        last = self._reached.get(at[0])
        return last is not None and last < at[1]

    def before(self, at: Numbered) -> list[Hashable] | None:
        """What was called just before by the same counter; None if not all of it is known."""
        calls = [self.call((at[0], at[1] - back)) for back in range(1, _CALLS_BEFORE + 1)]
        return None if None in calls else calls

    def reached_before(self, counter: Hashable, at: Numbered) -> int | None:
        """The number that ``counter`` had reached at the call before ``at``; None if that call is
        not known."""
        if at[1] == 1:
            return 0
        last = self._made.get((at[0], at[1] - 1))
        if last is None:
            return None
        made = self._made.items()
        return max(
            (n for (of, n), c in made if of == counter and c.record < last.record), default=0
        )


def order_votes(one: Numbered, other: Numbered, voters: Iterable[CallSequence[Any]]) -> list[bool]:
    """For each voter that made either of the two calls, whether ``one`` came first."""
    votes = []
    for voter in voters:
        first, second = voter.get(one), voter.get(other)
        if first and second:
            votes.append(first.record < second.record)
        elif first and voter.lacks(other):
            votes.append(True)
        elif second and voter.lacks(one):
            votes.append(False)
    return votes


def after_same_calls(
    calls: Mapping[int, Called],
    at: Numbered,
    voters: Iterable[int],
    sequence: Callable[[int], CallSequence[Any]],
) -> list[Differing]:
    """Those whose call differs from the one call of all voters that made the same calls just
    before.

    For voters of groups of other stages, whose programs may be shifted against this one.
    """
    mine = sequence(next(iter(calls))).before(at)
    if mine is None:
        return []
    like = [r for r in voters if sequence(r).get(at) and sequence(r).before(at) == mine]
    votes = {rank: sequence(rank).call(at) for rank in like}
    odd = unlike_equals(calls.values(), lambda _: votes, _LEAST_USUAL)
    if len(set(votes.values())) > 1 or len(odd) > half(len(calls)):
        return []
    asked = [sequence(rank) for rank in like]
    wrong = (calls[one.process] for one in odd)
    if not all(_in_its_place(at, one.call, sequence(one.process), asked) for one in wrong):
        return []
    return [msgspec.structs.replace(one, by="like groups") for one in odd]


def _in_its_place(
    at: Numbered, call: Hashable, mine: CallSequence[Any], voters: Collection[CallSequence[Any]]
) -> bool:
    """Whether the ``call`` under a number was made in place of the one call of all voters.

    Else it may be a call of its own stage alone, as a last stage makes for its loss, and its
    partner may have left it out. It is not where the voters make such calls too, where only the
    operation or the dtype differs, or where the process goes on as the voters do.
    """
    counter, number = at
    made, theirs = mine.of(counter), [voter.of(counter) for voter in voters]
    if any(call in calls.values() for calls in theirs):
        return True
    if any(_numels(voter, at) == _numels(mine, at) for voter in voters):
        return True
    after = {calls.get(number + 1) for calls in theirs} - {None}
    if after and number + 1 in made:
        return after == {made[number + 1]}
    due = {calls[number] for calls in theirs}
    earlier = [was for n, was in made.items() if n < number]
    return sum(was in due for was in earlier) >= HABIT and call not in earlier


def _numels(sequence: CallSequence[Any], at: Numbered) -> Hashable:
    call = sequence.get(at)
    return None if call is None else call.numels


def had_before(call: RecordedCall, earlier: Sequence[RecordedCall]) -> bool | None:
    """Whether a call is among the earlier ones of its process; None where these are too few."""
    if len(earlier) < HABIT:
        return None
    alike = [one for one in earlier if one.signature() == call.signature()]
    # Sizes of all-to-all mean nothing where they change by design.
    sizes = {_elements(one) for one in alike}
    of_one_size = len(alike) >= HABIT and len(sizes) == 1
    return bool(alike) and not (of_one_size and _elements(call) not in sizes)


def _elements(call: RecordedCall) -> tuple[int, int]:
    """Numbers of elements of all inputs, and of all outputs."""
    return sum(call.numels[0]), sum(call.numels[1])


def out_of_habit(habits: Mapping[int, Sequence[bool | None]], mute: Collection[int]) -> int | None:
    """The one process, among all that may have made the wrong call, that made one which it never
    makes; None if it cannot be told.

    ``habits`` are, for each, whether it made its latest calls before (``had_before``), the last
    one last. Nothing is known of those that are ``mute``.
    """
    odd = [process for process, calls in habits.items() if False in calls]
    as_ever = [process for process, calls in habits.items() if calls and calls[-1]]
    if len(odd) == 1 and (len(mute) == 1 or as_ever):
        return odd[0]
    if odd or len(mute) != 1 or len(as_ever) < len(habits):
        return None
    return next(iter(mute))
