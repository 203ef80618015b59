"""The progress of training over time, from all files of a job on one clock."""

from __future__ import annotations

import bisect
import itertools
import math
import statistics
from collections import Counter
from collections.abc import Sequence

import msgspec

from ray_sentinel.evidence.logs.records import FileFacts, Hit, StepSeen
from ray_sentinel.evidence.logs.training.phases import PhaseSeen
from ray_sentinel.model.triage import StepProgress

_ENOUGH = 200
"""Most step lines after an error that are looked at."""
_STREAM_SECONDS = 20.0
_FAR = 1e18
_ABSURD = 3600.0
"""Seconds; a step that is said to take this long is judged by the times of the lines alone."""
_SLOWER = 2.0
"""How many times longer than a bar says steps may have taken: evaluation and saving are not in its
figure."""
SURVIVED_STEPS = 3
"""Number of different steps after an error which show that training went on."""


class TrainingTimeline(msgspec.Struct, frozen=True, kw_only=True):
    """The course of training: the most informative file, and the steps in it."""

    file: int | None = None
    steps: tuple[StepSeen, ...] = ()
    others: tuple[tuple[int, tuple[StepSeen, ...]], ...] = ()
    step_seconds: float | None = None
    last_time: float | None = None
    """The time, in Unix seconds, of the last step that is dated on its own line or shortly before
    it."""
    latest: float | None = None
    """A time after which no step came, in Unix seconds; None where nothing shows one."""


def find_training(files: Sequence[FileFacts]) -> TrainingTimeline:
    """Choose the most informative series of steps, and learn the usual duration of a step."""
    series = [(i, tuple(_moving(f.steps))) for i, f in enumerate(files) if f.steps]
    series = [(i, steps) for i, steps in series if steps]
    if not series:
        return TrainingTimeline()
    best = max(
        series, key=lambda item: (len({s.step.step for s in item[1]}), item[1][-1].time or 0)
    )
    times = [s.time for _, steps in series for s in steps if s.time is not None]
    return TrainingTimeline(
        file=best[0],
        steps=best[1],
        others=tuple(item for item in series if item[0] != best[0]),
        step_seconds=usual_seconds(best[1]),
        last_time=max(times) if times else None,
        latest=_latest([steps for _, steps in series]),
    )


def _latest(series: Sequence[Sequence[StepSeen]]) -> float | None:
    dated = [steps[-1].time for steps in series if steps[-1].own_time]
    said = [when for when in dated if when is not None]
    if said:
        return max(said)
    bounds = [latest_time(steps) for steps in series]
    known = [when for when in bounds if when is not None]
    return max(known) if len(known) == len(bounds) else None


def latest_time(steps: Sequence[StepSeen]) -> float | None:
    """When the last of ``steps`` can have been made at the latest; None if nothing shows it.

    Bars have no times: those after a dated line all inherit its time, however long they went on.
    """
    last = steps[-1]
    if last.own_time:
        return last.time
    since = len(steps) - 1
    while since > 0 and steps[since].time is None:
        since -= 1
    dated = steps[since].time
    if dated is None:
        return last.next_time
    while since > 0 and steps[since - 1].time == dated:
        since -= 1
    made = _made(steps[since:])
    if made < SURVIVED_STEPS:
        return dated
    said = [seen.step.seconds for seen in steps if seen.step.seconds]
    bounds = [last.next_time]
    if said:
        bounds.append(dated + _SLOWER * made * statistics.median(said))
    return min((when for when in bounds if when is not None), default=None)


def _made(steps: Sequence[StepSeen]) -> int:
    """Steps from the first of ``steps`` to the last; a count that begins again is continued."""
    moved = 0
    for before, after in itertools.pairwise(steps):
        first, second = before.step.step, after.step.step
        more = 1 if first is None or second is None else second - first
        moved += more if more >= 0 else 1
    return moved


def _moving(steps: Sequence[StepSeen]) -> list[StepSeen]:
    return [seen for seen in steps if not seen.step.left]


def usual_seconds(steps: Sequence[StepSeen]) -> float | None:
    """The median time of a step: as the lines report it, or else from their times."""
    said = [seen.step.seconds for seen in steps if seen.step.seconds]
    usual = statistics.median(said) if said else None
    if usual is not None and usual < _ABSURD:
        return usual
    gaps = []
    for before, after in itertools.pairwise(steps):
        number = (after.step.step or 0) - (before.step.step or 0)
        if before.time is None or after.time is None or not 0 < number < 1000:
            continue
        if after.time > before.time:
            gaps.append((after.time - before.time) / number)
    return statistics.median(gaps) if gaps else None


def steps_after(hit: Hit, files: Sequence[FileFacts], training: TrainingTimeline) -> int:
    """How many different steps were made after ``hit``, as far as the order is known."""
    own = _later_steps(files[hit.file].steps, hit.offset)
    if own and _streamed(files[hit.file], hit):
        # What other processes print reaches a Ray driver's log seconds late.
        late = _STREAM_SECONDS / (training.step_seconds or _STREAM_SECONDS / SURVIVED_STEPS)
        own = own if len(own) >= late else set()
    if own:
        return len(own)
    if hit.latest is None:
        return _steps_since_end(hit.file, files, training)
    return steps_between(hit.latest, math.inf, training, beside=hit.file)


def _steps_since_end(file: int, files: Sequence[FileFacts], training: TrainingTimeline) -> int:
    """Different steps in the files that begin after this one's end: those of a later attempt."""
    end = files[file].last_time
    made: set[float | int | None] = set()
    for index, steps in ((training.file, training.steps), *training.others):
        begin = files[index].first_time if index is not None and index != file else None
        if begin is not None and end is not None and begin > end:
            made |= {seen.step.step for seen in steps}
    return len(made)


def steps_between(
    since: float, until: float, training: TrainingTimeline, beside: int | None = None
) -> int:
    """How many different steps were made in that time, in all files except ``beside``."""
    margin = 2 * (training.step_seconds or 1.0) + 1.0
    made: set[float | int | None] = set()
    for index, steps in ((training.file, training.steps), *training.others):
        if index is not None and index != beside:
            made |= {
                s.step.step
                for s in steps
                if s.time is not None and since + margin < s.time <= until
            }
    return len(made)


def _streamed(facts: FileFacts, hit: Hit) -> bool:
    """Whether the steps after ``hit`` come from other processes, through Ray's log streaming."""
    after = [seen for seen in facts.steps if seen.offset > hit.offset]
    own = hit.origin.pid if hit.streamed else None
    return bool(after) and all(seen.streamed and seen.pid != own for seen in after)


def _later_steps(steps: Sequence[StepSeen], offset: int) -> set[float | int | None]:
    """The different steps after ``offset``; a bar drawn again with its old step does not count."""
    index = bisect.bisect_right(steps, offset, key=lambda seen: seen.offset)
    before = steps[index - 1].step.step if index else None
    return {
        seen.step.step if seen.step.step is not None else seen.step.epoch
        for seen in steps[index : index + _ENOUGH]
        if not seen.step.left and (seen.step.step is None or seen.step.step != before)
    }


def progress(
    training: TrainingTimeline,
    saved: int | None,
    saved_at: float | None,
    end: float | None,
    total: int | None,
) -> StepProgress:
    """The facts about steps; ``saved`` is the step of the last complete checkpoint."""
    numbered = [s for s in training.steps if s.step.step is not None]
    if not numbered:
        return StepProgress(checkpoint_step=saved, total_steps=total)
    first, last = numbered[0], numbered[-1]
    seconds = training.step_seconds
    at = last.time
    expected = None
    total = total or _common_total(numbered)
    if seconds and at is not None and end is not None and end > at and last.step.step is not None:
        expected = last.step.step + int(min((end - at) / seconds, _FAR))
        expected = min(expected, total) if total else expected
    lost = _lost_steps(last.step.step, saved)
    losses = [s.step.loss for s in numbered if s.step.loss is not None]
    speeds = [s.step.tokens_per_second for s in numbered if s.step.tokens_per_second]
    return StepProgress(
        first_step=first.step.step,
        last_step=last.step.step,
        total_steps=total,
        step_seconds=round(seconds, 4) if seconds else None,
        last_step_at=at,
        expected_step=expected,
        loss=losses[-1] if losses else None,
        checkpoint_step=saved,
        lost_steps=lost,
        lost_seconds=_lost_seconds(lost, seconds, at, saved_at),
        tokens_per_second=statistics.median(speeds) if speeds else None,
    )


def _common_total(steps: Sequence[StepSeen]) -> int | None:
    totals = Counter(s.step.total for s in steps if s.step.total)
    return totals.most_common(1)[0][0] if totals else None


def _lost_steps(last: int | None, saved: int | None) -> int | None:
    if last is None or saved is None or saved > last:
        return None
    return last - saved


def _lost_seconds(
    lost: int | None, seconds: float | None, at: float | None, saved_at: float | None
) -> float | None:
    if at is not None and saved_at is not None and at >= saved_at:
        return round(at - saved_at, 1)
    if lost is not None and seconds is not None:
        return round(lost * seconds, 1)
    return None


def last_phase(files: Sequence[FileFacts], training: TrainingTimeline) -> PhaseSeen | None:
    """The last phase that was reached: the latest mark, or training if steps followed it."""
    marks = [
        (seen.time if seen.time is not None else -1.0, index, seen.offset, seen)
        for index, facts in enumerate(files)
        for seen in facts.phases
    ]
    latest = max(marks, key=lambda m: m[:3], default=None)
    if not training.steps:
        return latest[3] if latest else None
    step = training.steps[-1]
    if latest is not None and _later(latest[3], latest[1], step, training.file):
        return latest[3]
    began = training.steps[0]
    return PhaseSeen(phase="train", mark="steps", offset=step.offset, time=began.time, text="")


def phase_began(
    files: Sequence[FileFacts], training: TrainingTimeline, phase: PhaseSeen
) -> float | None:
    """When ``phase`` began: at the first dated one of its marks after the last mark of another
    phase and the last step in the file. Each line of a loader may be such a mark."""
    began = phase.time
    index = next((i for i, facts in enumerate(files) if phase in facts.phases), None)
    if index is None:
        return began

    def comes_after(seen: PhaseSeen, step: StepSeen) -> bool:
        return _later(seen, index, step, training.file)

    step = next((step for step in reversed(training.steps) if comes_after(phase, step)), None)
    marks = files[index].phases
    for seen in reversed(marks[: marks.index(phase)]):
        if seen.phase != phase.phase or (step is not None and not comes_after(seen, step)):
            break
        began = seen.time if seen.time is not None else began
    return began


def _later(mark: PhaseSeen, file: int, step: StepSeen, step_file: int | None) -> bool:
    if file == step_file:
        return mark.offset > step.offset
    return mark.time is not None and step.time is not None and mark.time > step.time


def slowdown(steps: Sequence[StepSeen]) -> tuple[float, float] | None:
    """(earlier, later) seconds per step, if the last fifth is considerably and lastingly slower;
    otherwise None.

    Spikes (checkpoints) do not count: medians are compared, and four of five late steps must be
    slower than nearly all early ones. The first steps (compilation) are left out.
    """
    values = [s.step.seconds for s in steps if s.step.seconds]
    if len(values) < 40:
        values = [1 / s.step.tokens_per_second for s in steps if s.step.tokens_per_second]
    if len(values) < 40:
        return None
    values = values[max(3, len(values) // 20) :]
    early, late = sorted(values[: len(values) // 3]), values[-max(8, len(values) // 5) :]
    before, after = statistics.median(early), statistics.median(late)
    bound = early[int(len(early) * 0.9)]
    slower = sum(1 for value in late if value > bound)
    if after > before * 1.25 and slower >= 0.8 * len(late):
        return before, after
    return None
