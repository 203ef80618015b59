"""Reads all logs of a job and runs the analysis on them.

Small jobs are read in full. Of large files the beginning and the end are examined closely; the
middle is only searched for a few telling words, and sampled for steps; the answer says so. If that
shows no cause, the files are read again in full, up to a limit.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Sequence
from pathlib import Path

import msgspec

from ray_sentinel.errors import InputError
from ray_sentinel.evidence.logs.analyse import analyse
from ray_sentinel.evidence.logs.case import Question
from ray_sentinel.evidence.logs.errors.catalogue import Catalogue
from ray_sentinel.logs.checkpoints import newest_checkpoint
from ray_sentinel.logs.find import FoundLog, find_logs
from ray_sentinel.logs.read_file import WHOLE, FileAnswer, Reach
from ray_sentinel.logs.share import Piece, helpers_for, read_shared
from ray_sentinel.model.triage import Triage

Progress = Callable[[int, int, str], None]
"""A function that is called with the bytes done, the bytes in all, and the file's label."""

_CLOSE = 8 << 20
"""Bytes that are looked at closely in a job larger than ``WHOLE``, spread over its files."""
_LEAST = 512 << 10
_SECOND_LOOK = 256 << 20
_SKIPPED_KINDS = frozenset({"agent"})
_UNSURE = frozenset({"unknown-death", "hang", "running"})


def triage_path(
    root: Path,
    catalogue: Catalogue,
    *,
    live: bool = False,
    checkpoints: Path | None = None,
    now: float | None = None,
    progress: Progress | None = None,
    catalogues: Sequence[Path] = (),
    helpers: int | None = 0,
    beside: Path | None = None,
    unread: Sequence[str] = (),
    skip: Collection[Path] = (),
) -> Triage:
    """Read the logs at or below ``root`` and say what happened. ``now`` defaults to the clock.

    ``helpers`` is how many additional processes may read; None for as many as are worthwhile. They
    load ``catalogues``, the user's files that ``catalogue`` was made with. ``beside`` holds more
    logs of the same job (from other nodes), if any; ``unread`` says which of them could not be
    read. Files in ``skip`` are not logs. Raises InputError if there is nothing to read.
    """
    every = [*find_logs(root), *(find_logs(beside) if beside is not None else ())]
    found = [f for f in every if f.file.kind not in _SKIPPED_KINDS and f.path not in skip]
    if not found:
        raise InputError(f"{root}: holds only the monitor's own logs, none of the job")
    saved = newest_checkpoint(checkpoints) if checkpoints is not None else None
    question = Question(
        now=time.time() if now is None else now,
        live=live,
        saved_step=saved.step if saved else None,
        saved_at=saved.modified if saved else None,
    )
    total = sum(item.file.size for item in found)
    job = _Job(found, catalogue, catalogues, helpers, progress)
    answer = job.ask(_reaches(found, total), question)
    if not any(map(_was_read, job.answers)):
        raise InputError(_nothing_read(root, job.answers))
    if (
        any(read.facts.sampled for read in job.answers)
        and answer.kind in _UNSURE
        and total <= _SECOND_LOOK
    ):
        answer = job.ask([None] * len(found), question)
    if unread:
        problems = (*answer.problems, *unread)
        answer = msgspec.structs.replace(answer, problems=problems)
    return answer


def _was_read(answer: FileAnswer) -> bool:
    """Whether anything was read: blank lines are a log too, of a job that ended without a word."""
    facts = answer.facts
    return bool(answer.where.offsets) or (not facts.problem and facts.file.size > 0)


def _nothing_read(root: Path, answers: Sequence[FileAnswer]) -> str:
    reasons = [f"{a.facts.file.label}: {a.facts.problem or 'is empty'}" for a in answers]
    more = f", and {len(reasons) - 5} more" if len(reasons) > 5 else ""
    return f"{root}: no log in it can be read: {'; '.join(reasons[:5])}{more}"


def _reaches(found: Sequence[FoundLog], total: int) -> list[Reach | None]:
    if total <= WHOLE:
        return [None] * len(found)
    share = max(_LEAST, _CLOSE // len(found))
    head = min(1 << 20, share // 4)
    return [None if item.file.size <= share else Reach(head, share - head) for item in found]


class _Job:
    """The files of one triage."""

    def __init__(
        self,
        found: Sequence[FoundLog],
        catalogue: Catalogue,
        catalogues: Sequence[Path],
        helpers: int | None,
        progress: Progress | None,
    ) -> None:
        self.found, self.catalogue, self.catalogues = found, catalogue, catalogues
        self.total = sum(item.file.size for item in found)
        self.helpers = helpers_for(self.total, len(found)) if helpers is None else helpers
        self.progress = progress
        self.done = 0
        self.answers: list[FileAnswer] = []

    def ask(self, reaches: Sequence[Reach | None], question: Question) -> Triage:
        """Read every file as far as its reach says, and analyse them."""
        self.done = 0
        pieces = [
            Piece(index, item, reach)
            for index, (item, reach) in enumerate(zip(self.found, reaches, strict=True))
        ]
        self.answers = read_shared(
            pieces, self.catalogue, self.catalogues, self.helpers, self._advance
        )
        facts = [answer.facts for answer in self.answers]
        return analyse(facts, self.catalogue, question, self._line_number)

    def _advance(self, piece: Piece, size: int) -> None:
        self.done += size
        if self.progress is not None:
            self.progress(min(self.done, self.total), self.total, piece.item.file.label)

    def _line_number(self, index: int, offset: int) -> int | None:
        return self.answers[index].where.line_number(offset)
