"""Steps whose number and figures stand on lines of their own.

Bare lines say no more than a step's number: ``INFO step 599``, ``[rank 0] Step 7/100 done``. Lists
of instructions and other counters look much the same. So nothing else may stand in such a line but
a logger's header and plain values, and a file's bare steps count only where they grow and no line
beside them says a step's loss or duration (``surest``).

Where lines of their own say how long the step before them took, and its loss, ``SplitSteps`` joins
them:

* NeMo-RL (nemo_rl/algorithms): ``=== Step 3/100 ===``, and at the step's end ``• Loss: 0.31`` and
  ``• Total step time: 61.23s``; others write ``Step time: 4.5 s`` or ``iteration took 310 ms``.
* SkyRL (utils/utils.py, Timer around one iteration of its loop): ``Finished: 'step', time cost:
  59.1s``; the bar ``Training Batches Processed`` moves after it, where there is one.
* Composer (loggers/console_logger.py): ``[batch=20/3200]:``, then ``Train loss/train/total: 5.1``
  and ``Train throughput/batches_per_sec: 0.85``.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import TypeVar

import msgspec

from ray_sentinel import regex as re
from ray_sentinel.evidence.logs.lines.lines import parse_line
from ray_sentinel.evidence.logs.training.steps import (
    NOT_TRAINING,
    PLAIN,
    ReportedStep,
    parse_number,
    parse_step,
    whole,
)

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
"""A word that may stand before the step: what loggers write, or that the step began or ended."""
_TAIL = re.compile(
    r"[\s\])}'\",;:.!|=*#-]*"
    r"(?:(?:is |was |has )?(?:done|finished|completed?|ended|ok|start(?:ed|ing|s)?|begins?|began)"
    r"\b[\s.,;:!]*)?"
    r"(?:(?:took|in|after) \d+(?:\.\d+)? ?(?:s|ms|sec|seconds)\b[\s.,;!]*)?"
    r"(?:[\s,;|{(\['\"]*[A-Za-z_][\w/.-]{0,30}['\"]?(?: ?[=:] ?| )['\"]?[-+]?\d[\w.+%-]{0,20}"
    r"['\")\]},;|]*){0,8}\s*",
    re.IGNORECASE,
)
"""What may follow the step: that it is done, how long it took, and values with their names."""
_OTHER = re.compile(
    r"\b(?:resum|restor|checkpoint|error|warn|crit|fatal|fail|retry|attempt|install|setup|build)",
    re.IGNORECASE,
)
_TOOK = re.compile(r"\b(?:took|in|after) (?P<seconds>\d+(?:\.\d+)?) ?(?P<unit>ms|s)", re.IGNORECASE)


STEP_END_HINTS = (
    b"tep time",
    b"ation time",
    b"took",
    b"Finished: 'step'",
    b"oss: ",
    b"orm: ",
    b"Train loss/",
    b"throughput/batches_per_sec",
)
"""The words of which every line about the step before it contains one."""
_RESULT = re.compile(
    r"^\W{0,8}(?P<name>[Ll]oss|[Gg]rad(?:ient)?[ _][Nn]orm|Train loss/train/total)"
    r": (?P<value>[-+]?[\w.+-]{1,24})\s*$"
)
_DURATION = re.compile(
    r"^\W{0,8}(?:(?:total|full|overall|train(?:ing)?) )?(?:step|iteration) (?:time|duration|took):?"
    r" {0,8}(?P<seconds>\d{1,12}(?:\.\d{1,12})?) ?(?P<unit>ms|s|secs?|seconds)\b",
    re.IGNORECASE,
)
_DURATION_OF, _DURATION_FRONT = ("step ", "iteration "), 40
"""One of which is in so many characters at the front of such a line."""
_RATE = re.compile(
    r"^\W{0,8}Train throughput/batches_per_sec: (?P<rate>\d{1,9}(?:\.\d{1,12})?)\s*$"
)
_FINISHED = re.compile(r"Finished: 'step', time cost: (?P<seconds>\d+(?:\.\d+)?) ?s")
_LOOP_BAR = "Training Batches Processed"
_COMPOSER = re.compile(r"^\W{0,4}batch=\d+(?:/\d+)?\]:\s*$")


class SplitSteps:
    """Joins the lines of one log, or of one writer in it, that describe the same step."""

    def __init__(self) -> None:
        self._begun: ReportedStep | None = None
        self._last: ReportedStep | None = None
        self._bar: ReportedStep | None = None
        self._finished = 0
        self._results: dict[str, float] = {}

    @property
    def found(self) -> bool:
        """Whether the log reports the end of steps on lines of their own."""
        return self._finished > 0

    def begin(self, step: ReportedStep, text: str) -> None:
        """Record that the line ``text`` gave the number of ``step``."""
        if step.bare or _COMPOSER.match(text):
            self._begun, self._results = step, {}
            return
        self._last = step
        if _LOOP_BAR in text:
            self._bar = step

    def feed(self, text: str) -> ReportedStep | None:
        """The step that the log's next line reports or completes; None if neither."""
        tells, step = self.read(text)
        if not tells:
            step = parse_any_step(text)
            if step is not None:
                self.begin(step, text)
        return step

    def read(self, text: str) -> tuple[bool, ReportedStep | None]:
        """(whether the line is about the step before it, that step if this line completes it)."""
        front = text[:_DURATION_FRONT].casefold()
        named = any(word in front for word in _DURATION_OF)
        if named and (match := _DURATION.match(text)):
            thousandth = match["unit"].lower() == "ms"
            return True, self._ended(float(match["seconds"]) / (1000 if thousandth else 1))
        if match := _FINISHED.search(text):
            self._finished += 1
            bar = self._bar
            number = self._finished if bar is None or bar.step is None else bar.step + 1
            total = bar.total if bar is not None else None
            return True, ReportedStep(step=number, total=total, seconds=float(match["seconds"]))
        if self._begun is None:
            return False, None
        if (match := _RATE.match(text)) and float(match["rate"]):
            return True, self._ended(1 / float(match["rate"]))
        match = _RESULT.match(text)
        if match is None:
            return False, None
        value = parse_number(match["value"])
        if value is not None:
            self._results["norm" if "norm" in match["name"].lower() else "loss"] = value
        return True, None

    def _ended(self, seconds: float) -> ReportedStep:
        begun, results = self._begun, self._results
        self._begun, self._results = None, {}
        if begun is None and self._last is not None:
            return msgspec.structs.replace(self._last, seconds=seconds)
        self._finished += 1
        step = begun or ReportedStep(step=self._finished)
        loss, norm = results.get("loss", step.loss), results.get("norm", step.norm)
        return msgspec.structs.replace(step, seconds=seconds, loss=loss, norm=norm, bare=False)


def parse_any_step(text: str) -> ReportedStep | None:
    """The training step that ``text`` (one line without launcher prefixes) reports, or None.
    ``bare`` is set if the line has little more than a number."""
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
    """The steps of one log that count, in order: those with a loss or a duration; if no line has
    one, the bare ones, provided that there are at least two and they increase."""
    measured = [item for item in seen if not step_of(item).bare]
    if measured:
        return measured
    return list(seen) if _grow([step_of(item).step or 0 for item in seen]) else []


class LastStep:
    """The last numbered step of a log that arrives in parts, by the rule of ``surest``."""

    def __init__(self) -> None:
        self.step: ReportedStep | None = None
        self._bare: list[int] = []
        """The number of the last bare line, once there was one."""

    def feed(self, lines: Sequence[str]) -> None:
        """Process the next lines of the log."""
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
