"""What is said of a rank that is named, in the same words whatever tool shows it.

Each form is the predicate of a sentence about one rank: "rank 3 has not come to all_reduce, in
which 5 other ranks wait; it is sleeping in hold (train.py:7)".
"""

from __future__ import annotations

OWN_CODE = "it stopped in its own code"
"""Why a rank does not come, where its tool shows that it waits for nothing."""


def counted(count: int, others: bool = True) -> str:
    """So many ranks, mostly those besides the one that a sentence is about.

    >>> counted(1), counted(5), counted(5, others=False)
    ('1 other rank', '5 other ranks', '5 ranks')
    """
    return f"{count} {'other ' if others else ''}{'rank' if count == 1 else 'ranks'}"


def wait(count: int, others: bool = True) -> str:
    """That so many ranks wait.

    >>> wait(1), wait(5)
    ('1 other rank waits', '5 other ranks wait')
    """
    return f"{counted(count, others)} {'waits' if count == 1 else 'wait'}"


def has_not_come(operation: str, held_up: str, doing: str) -> str:
    """``held_up`` says who needs it there, ``doing`` what it does instead.

    >>> has_not_come("all_reduce", f"in which {wait(5)}", "is sleeping")
    'has not come to all_reduce, in which 5 other ranks wait; it is sleeping'
    """
    return f"has not come to {operation}, {held_up}; it {doing}"


def called_otherwise(call: str, others: str, usual: str) -> str:
    """``others`` are those that made the ``usual`` call.

    >>> called_otherwise("broadcast", "3 of 4 members", "all_reduce")
    'called broadcast, where 3 of 4 members called all_reduce'
    """
    return f"called {call}, where {others} called {usual}"
