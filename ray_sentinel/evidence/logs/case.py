"""The state of one analysis: what is known about the job, and how a hit is shown."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from ray_sentinel.evidence.logs.causes import is_trouble
from ray_sentinel.evidence.logs.errors.catalogue import Catalogue
from ray_sentinel.evidence.logs.errors.engines import last_served
from ray_sentinel.evidence.logs.lines.lines import Origin
from ray_sentinel.evidence.logs.outcome import Ending
from ray_sentinel.evidence.logs.process_index import ProcessIndex
from ray_sentinel.evidence.logs.records import FileFacts, Hit
from ray_sentinel.evidence.logs.training.phases import PhaseSeen
from ray_sentinel.evidence.logs.training.timeline import TrainingTimeline
from ray_sentinel.masking import mask
from ray_sentinel.model.triage import LogLine

LineNumber = Callable[[int, int], int | None]
"""A function from (file, byte offset) to the line's number, counted from 1, or None."""
_COMING_TOGETHER = frozenset({"import", "placement", "process-group"})
SHOWN = 400
"""Most characters of a line in an answer; the rest of a longer one is cut off."""


class Question(msgspec.Struct, frozen=True, kw_only=True):
    """The input of the analysis other than the files."""

    now: float | None = None
    """The reader's time in Unix seconds; None for an archive of unknown age."""
    live: bool = False
    """The files are those of a session that may still run."""
    saved_step: int | None = None
    """The step of the last complete checkpoint found on disk."""
    saved_at: float | None = None


class LogAnalysis(msgspec.Struct, kw_only=True):
    """One analysis in progress."""

    files: list[FileFacts]
    catalogue: Catalogue
    question: Question
    training: TrainingTimeline
    ending: Ending
    fatal: list[Hit]
    survived: list[Hit]
    phase: PhaseSeen | None
    processes: ProcessIndex
    number: LineNumber

    @property
    def started(self) -> bool:
        """Whether training, or a serving engine, was at work when the job ended. A new attempt
        whose ranks are still joining has not started, even after steps of an earlier attempt."""
        phase = self.phase
        if phase is not None and phase.phase in _COMING_TOGETHER and self.training.steps:
            trouble = [hit.time for hit in self.fatal if hit.time is not None and is_trouble(hit)]
            if phase.time is not None and phase.time <= min(trouble, default=phase.time):
                return False
        return bool(self.training.steps) or last_served(self.files) is not None

    @property
    def end(self) -> float | None:
        """The latest time in any file."""
        return max((f.last_time for f in self.files if f.last_time is not None), default=None)

    @property
    def world(self) -> int | None:
        """The number of ranks that a log's header states; None if none does."""
        sizes = (f.facts.get("world_size", "") for f in self.files)
        return max((int(size) for size in sizes if size.isdigit()), default=None)

    def printed_by(self, hit: Hit) -> Origin:
        """The process that printed the line, by the line and by the name of its file."""
        return hit.origin.filled(self.files[hit.file].file.origin)

    def show(self, hit: Hit, note: str) -> LogLine:
        """``hit`` as a line of the answer."""
        return self.line(hit.file, hit.offset, hit.text, note, hit.time)

    def line(self, file: int, offset: int, text: str, note: str, time: float | None) -> LogLine:
        """What stands at ``offset`` of a file, as a line of the answer."""
        text = mask(text)
        return LogLine(
            file=self.files[file].file.label,
            line=self.number(file, offset),
            text=text if len(text) <= SHOWN else text[: SHOWN - 1] + "…",
            note=note,
            time=time,
        )
