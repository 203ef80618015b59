"""Lines that say no more than a step's number: ``INFO step 599``, ``[rank 0] Step 7/100 done``.

Lists of instructions and other counters look much the same. So nothing else may stand in such a
line but a logger's header and plain values, and a file's bare steps count only where they grow and
no line beside them says a step's loss or duration (``surest``).
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import TypeVar

from ray_sentinel import regex as re
from ray_sentinel.evidence.logs.lines import parse_line
from ray_sentinel.evidence.logs.steps import NOT_TRAINING, PLAIN, ReportedStep, parse_step, whole

Item = TypeVar("Item")

_LONGEST = 300
_HEADER = re.compile(
    r"[^A-Za-z]+"  # a date, a rank, a bracket
    r"|[\[(<{'\"][^\s]*|[^\s]*[\])>}:|]"  # [INFO], [rank0], trainer:
    r"|\w*\d[\w:.+-]*|\w+(?:[._]\w+)+"  # 2026-11-20T10:00:00Z, my.module
    r"|(?:info|debug|notice|trace|rank|worker|epoch|trainer|train(?:ing)?|main|now|at|in|current"
    r"|global|start(?:ing|ed|s)?|begin(?:ning|s)?|began|finish(?:ed|ing|es)?|complet(?:ed|ing)"
    r"|done|end(?:ed|ing)?|ran|running|rank\d+|utc)[,;:.|]?",
    re.IGNORECASE,
)
"""A word that may stand before the step: what loggers write, and that it began or ended."""
_TAIL = re.compile(
    r"[\s\])}'\",;:.!|=*#-]*"
    r"(?:(?:is |was |has )?(?:done|finished|completed?|ended|ok|start(?:ed|ing|s)?|begins?|began)"
    r"\b[\s.,;:!]*)?"
    r"(?:(?:took|in|after) \d+(?:\.\d+)? ?(?:s|ms|sec|seconds)\b[\s.,;!]*)?"
    r"(?:[\s,;|{(\['\"]*[A-Za-z_][\w/.-]{0,30}['\"]?(?: ?[=:] ?| )['\"]?[-+]?\d[\w.+%-]{0,20}"
    r"['\")\]},;|]*){0,8}\s*",
    re.IGNORECASE,
)
"""What may follow: that it is done, how long it took, and values with their names."""
_OTHER = re.compile(
    r"\b(?:resum|restor|checkpoint|error|warn|crit|fatal|fail|retry|attempt|install|setup|build)",
    re.IGNORECASE,
)
_TOOK = re.compile(r"\b(?:took|in|after) (?P<seconds>\d+(?:\.\d+)?) ?(?P<unit>ms|s)", re.IGNORECASE)


def parse_any_step(text: str) -> ReportedStep | None:
    """The training step that ``text`` (one line without launcher prefixes) reports, or None; with
    ``bare`` set where it says little more than a number."""
    return parse_step(text) or _bare(text)


def _bare(text: str) -> ReportedStep | None:
    if len(text) > _LONGEST:
        return None
    match = PLAIN.search(text)
    if match is None or not _TAIL.fullmatch(text, match.end()):
        return None
    head = text[: match.start()]
    if NOT_TRAINING.search(text) or _OTHER.search(text):
        return None
    if not all(_HEADER.fullmatch(word) for word in head.split()):
        return None
    total, took = match.group("total"), _TOOK.search(text, match.end())
    seconds = float(took.group("seconds")) if took else None
    if took and seconds is not None and took.group("unit").lower() == "ms":
        seconds /= 1000
    return ReportedStep(
        step=whole(match.group("step")),
        total=whole(total) if total else None,
        seconds=seconds,
        per_epoch="poch" in text,
        bare=True,
    )


def surest(seen: Sequence[Item], step_of: Callable[[Item], ReportedStep]) -> list[Item]:
    """The steps of one log that count, in their order: those with a loss or a duration; where no
    line has one, the bare ones, if there are at least two and they grow."""
    measured = [item for item in seen if not step_of(item).bare]
    if measured:
        return measured
    return list(seen) if _grow([step_of(item).step or 0 for item in seen]) else []


class LastStep:
    """The last numbered step of a log that comes in pieces, by the rule of ``surest``."""

    def __init__(self) -> None:
        self.step: ReportedStep | None = None
        self._bare: list[int] = []
        """The number of the last bare line, once there was one."""

    def feed(self, lines: Sequence[str]) -> None:
        """Take the log's next lines."""
        newest: ReportedStep | None = None
        numbers: list[int] = []
        for line in reversed(lines):
            step = parse_any_step(parse_line(line).text)
            if step is None or step.step is None:
                continue
            if not step.bare:
                self.step = step
                return
            newest = newest or step
            numbers.append(step.step)
        if newest is None or (self.step is not None and not self.step.bare):
            return
        seen = [*self._bare, *reversed(numbers)]
        if self.step is not None or _grow(seen):
            self.step = newest
        self._bare = seen[-1:]


def _grow(numbers: Sequence[int]) -> bool:
    return any(after > before for before, after in itertools.pairwise(numbers))
