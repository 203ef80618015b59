"""One rank is past the loop in which all others still are, and everybody waits."""

from __future__ import annotations

import pytest

from ray_sentinel.evidence.stacks.frames.blocks import PythonSource
from ray_sentinel.model.stacks import StackFact
from ray_sentinel.waitgraph.stacks import Explanation
from tests.support.stack_facts import elsewhere, fact, looks, ranks

TEXT = """
def main(rank):
    prepare()
    train(rank)
    if rank % 2:
        export()
    else:
        publish()
    barrier()
    try:
        train_guarded(rank)
    finally:
        close()
    if rank < 7:
        train_some(rank)
    serve()
    if rank == 7:
        watch()

def train_some(rank):
    for step in range(100):
        part_of_some()

def train_guarded(rank):
    if rank < 7:
        for step in range(100):
            part_of_few()
    for step in range(100):
        part_of_all()

def train(rank):
    for step in range(100):
        for part in range(4):
            forward(part)
        sum_up()
    report()

main(0)
"""
SOURCE = PythonSource(TEXT)
TOP = ("<module>", "main(0)")
TRAIN = (TOP, ("main", "    train(rank)"))
FORWARD, SUM_UP, REPORT = ((*TRAIN, ("train", words)) for words in ("forward", "sum_up", "report"))
GUARDED = (TOP, ("main", "train_guarded(rank)"))
PART_OF_ALL, PART_OF_FEW = (
    (*GUARDED, ("train_guarded", f"part_of_{who}")) for who in ("all", "few")
)
PART_OF_SOME = (TOP, ("main", "        train_some(rank)"), ("train_some", "part_of_some"))
SERVE, WATCH, CLOSE = ((TOP, ("main", words)) for words in ("serve()", "watch()", "close()"))
BARRIER, EXPORT, PUBLISH, PREPARE = (
    (TOP, ("main", words)) for words in ("    barrier", "export", "publish", "prepare")
)

Calls = tuple[tuple[str, str], ...]


def at(number: int, calls: Calls, operation: str, *, first: tuple[str, ...] = ()) -> StackFact:
    """A rank that waits in ``operation``, come to it by these calls of ``TEXT``."""
    blocks, signature = {}, list(first)
    for function, words in calls:
        line = next(n for n, text in enumerate(TEXT.splitlines(), 1) if words in text)
        place = f"{function} (job.py:{line})"
        found = SOURCE.blocks(function, line)
        assert found is not None
        signature.append(place)
        blocks[place] = found
    signature.append(f"{operation} (torch/distributed/distributed_c10d.py:9)")
    return fact(
        number,
        signature=tuple(signature),
        operation=operation,
        label=f"in {operation}",
        blocks=blocks,
    )


def judged(*facts: StackFact) -> Explanation | None:
    """The verdict, if it says that somebody has left the loop."""
    found = looks(*facts)
    return found if any("has left a loop" in item.text for item in found.evidence) else None


STAGES = (at(0, FORWARD, "recv"), at(1, FORWARD, "send"), at(2, SUM_UP, "all_reduce"))


@pytest.mark.parametrize("behind", [BARRIER, EXPORT, REPORT])
def test_who_is_behind_the_loop_alone_is_named(behind: Calls) -> None:
    found = looks(*STAGES, at(3, behind, "barrier"))
    assert (ranks(found), found.kind) == ([3], "collective-mismatch")
    assert any("has left a loop in which all others still are" in e.text for e in found.evidence)


@pytest.mark.parametrize("behind", [SERVE, WATCH])
def test_who_has_left_a_guarded_loop_is_named(behind: Calls) -> None:
    found = judged(*(at(n, PART_OF_ALL, "recv") for n in range(7)), at(7, behind, "recv"))
    assert found is not None
    assert ranks(found) == [7]


def test_one_look_is_less_sure_than_two() -> None:
    facts = [*STAGES, at(3, BARRIER, "barrier")]
    assert looks(*facts, times=1).confidence < looks(*facts).confidence


@pytest.mark.parametrize(
    "facts",
    [
        pytest.param(
            (*STAGES[:2], at(2, FORWARD, "recv"), at(3, SUM_UP, "all_reduce")),
            id="a round behind or ahead, in an outer loop",
        ),
        pytest.param((*STAGES, at(3, PREPARE, "broadcast")), id="not yet in the loop"),
        pytest.param(
            (*STAGES, at(3, BARRIER, "barrier"), at(4, BARRIER, "barrier")), id="two have left it"
        ),
        pytest.param((*STAGES, at(3, BARRIER, "barrier"), elsewhere(4)), id="one waits for nobody"),
        pytest.param(
            (at(0, EXPORT, "recv"), at(1, EXPORT, "send"), at(2, PUBLISH, "recv")),
            id="branches of one choice",
        ),
        pytest.param(
            (at(0, PREPARE, "recv"), at(1, PREPARE, "send"), at(2, BARRIER, "barrier")),
            id="no loop",
        ),
        pytest.param(
            (*(at(n, PART_OF_SOME, "recv") for n in range(7)), at(7, WATCH, "recv")),
            id="a part of its own, behind the others' if",
        ),
        pytest.param(
            (*(at(n, PART_OF_FEW, "recv") for n in range(7)), at(7, SERVE, "recv")),
            id="a part of its own, in a function that all call",
        ),
        pytest.param(
            (*(at(n, PART_OF_ALL, "recv") for n in range(7)), at(7, CLOSE, "barrier")),
            id="at the end of the try that the others are in",
        ),
        pytest.param((at(0, FORWARD, "recv"), at(1, BARRIER, "barrier")), id="two ranks"),
        pytest.param((*STAGES, at(4, BARRIER, "barrier")), id="a rank is missing"),
        pytest.param(STAGES, id="nobody has left it"),
    ],
)
def test_where_the_order_does_not_tell_nobody_is_named(facts: tuple[StackFact, ...]) -> None:
    assert judged(*facts) is None


def test_where_the_text_is_not_known_nobody_is_named() -> None:
    known = (*STAGES, at(3, BARRIER, "barrier"))
    assert judged(*known) is not None
    for index in range(len(known)):
        facts = [*known]
        facts[index] = fact(index, signature=known[index].signature, operation="barrier")
        assert judged(*facts) is None


RAY = ("<module> (default_worker.py:300)", "main_loop (ray/_private/worker.py:1000)")


@pytest.mark.parametrize(
    ("once", "named"),
    [
        ("step (trainer.py:4)", False),
        ("<module> (run.py:1)", True),
        ("construct (ray/train/_internal/utils.py:176)", True),
    ],
)
def test_a_method_of_an_actor_may_be_called_again_and_again(once: str, named: bool) -> None:
    first = (*RAY, once)
    inner = [calls[1:] for calls in (FORWARD, FORWARD, SUM_UP, BARRIER)]
    facts = [at(n, calls, "recv", first=first) for n, calls in enumerate(inner)]
    found = judged(*facts)
    assert (found is not None) is named
