"""The steps and the phases of training that a part of a log reports."""

from __future__ import annotations

from ray_sentinel.evidence.logs.lines.chunk import MAX_LINE, Chunk, split_lines
from ray_sentinel.evidence.logs.lines.lines import ScannedLine, is_streamed, parse_line
from ray_sentinel.evidence.logs.lines.shapes import MOST_SHAPES, shape_of
from ray_sentinel.evidence.logs.records import FileFacts, StepSeen
from ray_sentinel.evidence.logs.training.bare_steps import (
    STEP_END_HINTS,
    SplitSteps,
    parse_any_step,
)
from ray_sentinel.evidence.logs.training.phases import CompiledMark, PhaseSeen, find_phase
from ray_sentinel.evidence.logs.training.steps import HINTS, ReportedStep

_MOST_STEPS, _MOST_MARKS = 60_000, 2000
_DULL_AFTER = 3
"""Number of lines of a shape that were neither a step nor a mark of a phase after which the shape
is not looked at again."""


class MovementReader:
    """Reads windows of a file into its facts."""

    def __init__(self, out: FileFacts, marks: tuple[CompiledMark, ...]) -> None:
        self._out, self._marks = out, marks
        self._dull: dict[bytes, int] = {}
        self._split = SplitSteps()

    @property
    def counts_by_ends(self) -> bool:
        """Whether the log reports the end of each step; its bars of one epoch then count parts of a
        step."""
        return self._split.found

    def read(self, chunk: Chunk) -> None:
        """Record every step and every phase in the window."""
        for start, raw in split_lines(chunk.data):
            shape = shape_of(raw)
            dull = self._dull.get(shape, 0)
            if dull >= _DULL_AFTER or not raw:
                continue
            line = parse_line(raw[:MAX_LINE].decode("utf-8", "replace"))
            if any(hint in raw for hint in STEP_END_HINTS) and self._step_end(line, chunk, start):
                continue
            if any(hint in raw for hint in HINTS) and self._step(line, chunk, start):
                continue
            if not self._phase(line, chunk, start) and len(self._dull) < MOST_SHAPES:
                self._dull[shape] = dull + 1

    def _step(self, line: ScannedLine, chunk: Chunk, start: int) -> bool:
        step = parse_any_step(line.text)
        if step is None:
            return False
        self._split.begin(step, line.text)
        self._keep(step, line, chunk, start)
        return True

    def _step_end(self, line: ScannedLine, chunk: Chunk, start: int) -> bool:
        ends, step = self._split.read(line.text)
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
                own_time=when.own_time,
                next_time=when.next_time,
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
