"""The steps and the phases of training that a piece of a log reports."""

from __future__ import annotations

import msgspec

from ray_sentinel import regex as re
from ray_sentinel.evidence.logs.bare_steps import parse_any_step
from ray_sentinel.evidence.logs.chunk import MAX_LINE, Chunk, split_lines
from ray_sentinel.evidence.logs.lines import ScannedLine, is_streamed, parse_line
from ray_sentinel.evidence.logs.phases import CompiledMark, PhaseSeen, find_phase
from ray_sentinel.evidence.logs.records import FileFacts, StepSeen
from ray_sentinel.evidence.logs.shapes import MOST_SHAPES, shape_of
from ray_sentinel.evidence.logs.steps import HINTS, ReportedStep, parse_number

_MOST_STEPS, _MOST_MARKS = 60_000, 2000
_DULL_AFTER = 3
"""A shape of line that was so often no step and no mark of a phase is not looked at again."""


_RESULT = re.compile(
    r"^\W{0,8}(?P<name>[Ll]oss|[Gg]rad(?:ient)? [Nn]orm): (?P<value>[-+]?[\w.+-]{1,24})\s*$"
)
_TOTAL_TIME = re.compile(r"^\W{0,8}Total step time: (?P<seconds>\d+(?:\.\d+)?) ?s")
"""NeMo-RL (nemo_rl/algorithms): ``=== Step 3/100 ===``, and at the step's end ``• Loss: 0.31`` and
``• Total step time: 61.23s`` on lines of their own."""
_FINISHED = re.compile(r"Finished: 'step', time cost: (?P<seconds>\d+(?:\.\d+)?) ?s")
"""SkyRL (utils/utils.py, Timer around one iteration of its loop); the bar ``Training Batches
Processed`` moves after it, where there is one."""
_LOOP_BAR = "Training Batches Processed"
_TIMED_HINTS = (b"Total step time", b"Finished: 'step'", b"Loss: ", b"orm: ")


class _TimedSteps:
    """The steps of a log that says on lines of their own how long they took."""

    def __init__(self) -> None:
        self._begun: ReportedStep | None = None
        self._bar: ReportedStep | None = None
        self._finished = 0
        self._results: dict[str, float] = {}

    @property
    def found(self) -> bool:
        """Whether the log tells the ends of its steps so."""
        return self._finished > 0

    def note(self, step: ReportedStep, text: str) -> None:
        """A line gave this step's number."""
        if step.bare:
            self._begun, self._results = step, {}
        elif _LOOP_BAR in text:
            self._bar = step

    def read(self, text: str) -> tuple[bool, ReportedStep | None]:
        """(whether the line is of a step's end, the step that it ends)."""
        if match := _TOTAL_TIME.match(text):
            return True, self._ended(float(match["seconds"]))
        if match := _FINISHED.search(text):
            self._finished += 1
            bar = self._bar
            number = self._finished if bar is None or bar.step is None else bar.step + 1
            total = bar.total if bar is not None else None
            return True, ReportedStep(step=number, total=total, seconds=float(match["seconds"]))
        match = _RESULT.match(text) if self._begun is not None else None
        if match is None:
            return False, None
        value = parse_number(match["value"])
        if value is not None:
            self._results["loss" if match["name"].lower() == "loss" else "norm"] = value
        return True, None

    def _ended(self, seconds: float) -> ReportedStep:
        self._finished += 1
        begun, results = self._begun, self._results
        self._begun, self._results = None, {}
        step = begun or ReportedStep(step=self._finished)
        return msgspec.structs.replace(
            step, seconds=seconds, loss=results.get("loss"), norm=results.get("norm"), bare=False
        )


class MovementReader:
    """Reads windows of a file into its facts."""

    def __init__(self, out: FileFacts, marks: tuple[CompiledMark, ...]) -> None:
        self._out, self._marks = out, marks
        self._dull: dict[bytes, int] = {}
        self._timed = _TimedSteps()

    @property
    def counts_by_ends(self) -> bool:
        """The log says when each step ended: its bars of one epoch count parts of a step."""
        return self._timed.found

    def read(self, chunk: Chunk) -> None:
        """Note every step and every phase of the window."""
        for start, raw in split_lines(chunk.data):
            shape = shape_of(raw)
            dull = self._dull.get(shape, 0)
            if dull >= _DULL_AFTER or not raw:
                continue
            line = parse_line(raw[:MAX_LINE].decode("utf-8", "replace"))
            if any(hint in raw for hint in _TIMED_HINTS) and self._step_end(line, chunk, start):
                continue
            if any(hint in raw for hint in HINTS) and self._step(line, chunk, start):
                continue
            if not self._phase(line, chunk, start) and len(self._dull) < MOST_SHAPES:
                self._dull[shape] = dull + 1

    def _step(self, line: ScannedLine, chunk: Chunk, start: int) -> bool:
        step = parse_any_step(line.text)
        if step is None:
            return False
        self._timed.note(step, line.text)
        self._keep(step, line, chunk, start)
        return True

    def _step_end(self, line: ScannedLine, chunk: Chunk, start: int) -> bool:
        ends, step = self._timed.read(line.text)
        if step is not None:
            self._keep(step, line, chunk, start)
        return ends

    def _keep(self, step: ReportedStep, line: ScannedLine, chunk: Chunk, start: int) -> None:
        if len(self._out.steps) < _MOST_STEPS:
            own = line.origin.rank
            when = chunk.when(line.prefix + line.text, start)
            seen = StepSeen(
                step=step,
                offset=chunk.base + start,
                time=when.time,
                own_time=when.own,
                next_time=when.next,
                rank=own if own is not None else self._out.file.origin.rank,
                pid=line.origin.pid,
                streamed=is_streamed(line),
            )
            self._out.steps.append(seen)

    def _phase(self, line: ScannedLine, chunk: Chunk, start: int) -> bool:
        mark = find_phase(self._marks, line.text)
        if mark is None:
            return False
        if len(self._out.phases) < _MOST_MARKS:
            self._out.phases.append(
                PhaseSeen(
                    phase=mark.phase,
                    mark=mark.id,
                    offset=chunk.base + start,
                    time=chunk.when(line.prefix + line.text, start).time,
                    text=line.text[:300],
                )
            )
        return True
