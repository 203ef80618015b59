"""All files' facts together: what became of the job, the class, the first cause, the culprits."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec

from ray_sentinel.evidence.logs.catalogue import Catalogue
from ray_sentinel.evidence.logs.causes import (
    class_of,
    first_cause,
    in_order,
    is_trouble,
    split_survived,
    tier,
)
from ray_sentinel.evidence.logs.culprits import name_culprits
from ray_sentinel.evidence.logs.mask import mask
from ray_sentinel.evidence.logs.outcome import Ending, find_ending, silence
from ray_sentinel.evidence.logs.phases import PhaseSeen
from ray_sentinel.evidence.logs.records import FileFacts, Hit
from ray_sentinel.evidence.logs.timeline import (
    Training,
    clock_shifts,
    find_training,
    last_phase,
    progress,
    shifted,
    slowdown,
)
from ray_sentinel.model.triage import (
    Echo,
    FailureClass,
    LogCulprit,
    LogException,
    LogLine,
    Outcome,
    StepProgress,
    Triage,
)

LineNumber = Callable[[int, int], int | None]
"""(file, byte offset) → the line's number from 1, or None."""
_SHOWN = 400
_EVIDENCE = 12


class Question(msgspec.Struct, frozen=True, kw_only=True):
    """What the analysis is told beside the files."""

    now: float | None = None
    """The reader's time; None for an archive of unknown age."""
    live: bool = False
    """The files are those of a session that may still run."""
    saved_step: int | None = None
    """The last complete checkpoint found on disk."""
    saved_at: float | None = None


class _Case(msgspec.Struct, kw_only=True):
    """One analysis under way."""

    files: list[FileFacts]
    catalogue: Catalogue
    question: Question
    training: Training
    ending: Ending
    fatal: list[Hit]
    survived: list[Hit]
    phase: PhaseSeen | None
    number: LineNumber


def analyse(
    files: Sequence[FileFacts],
    catalogue: Catalogue,
    question: Question | None = None,
    line_number: LineNumber = lambda file, offset: None,
) -> Triage:
    """The answer for the files of one job; an empty sequence is answered with unknown-death."""
    question = question or Question()
    shifts = clock_shifts(files)
    moved = [shifted(facts, by) for facts, by in zip(files, shifts, strict=True)]
    training = find_training(moved)
    ending = find_ending(moved, training, question.now, live=question.live)
    real = [h for f in moved for h in f.hits if h.signature.role not in ("harmless", "note")]
    before, after = ending.split(real)
    fatal, survived = split_survived(before, moved, training, ending.completed)
    case = _Case(
        files=moved,
        catalogue=catalogue,
        question=question,
        training=training,
        ending=ending,
        fatal=fatal,
        survived=survived,
        phase=last_phase(moved, training),
        number=line_number,
    )
    if ending.completed:
        return _finished(case, after)
    return _unfinished(case)


def _finished(case: _Case, after: list[Hit]) -> Triage:
    """Training came to its end: what went wrong later is teardown, but for a lost last save."""
    lost = [h for h in (*case.fatal, *after) if h.signature.kind == "checkpoint-fs-error"]
    if lost and is_trouble(lost[0]):
        return _answer(case, "checkpoint-fs-error", "failed", lost[0], confidence=0.7)
    noise = [h for h in after if is_trouble(h) or h.signature.role == "echo"]
    noise += [h for h in case.fatal if is_trouble(h)]
    nan = _nan_at_end(case)
    if nan is not None:
        return _answer(case, "nan-loss", "completed", nan, confidence=0.8)
    worst = first_cause([h for h in noise if is_trouble(h) or h.exit is not None], True)
    if worst is not None:
        return _answer(case, "soft-success", "completed", worst, confidence=0.8, after=after)
    slow = slowdown(case.training.steps)
    if slow is not None:
        return _slow(case, slow, "completed")
    return _answer(case, "completed", "completed", None, confidence=0.9)


def _unfinished(case: _Case) -> Triage:
    started = bool(case.training.steps)
    cause = first_cause(case.fatal, started)
    quiet = silence(
        case.files, case.training, case.phase, case.question.now, live=case.question.live
    )
    if cause is not None and is_trouble(cause):
        kind = class_of(cause, started)
        if kind in ("cancelled", "preempted") and quiet is not None and quiet.before_end:
            return _answer(
                case, "hang", "stopped", None, confidence=0.7, underlying=kind, quiet=True
            )
        if kind == "cancelled" or kind == "preempted":
            return _answer(case, kind, "stopped", cause, confidence=0.85)
        sure = 0.9 if cause.signature.role == "cause" else 0.7
        return _answer(case, kind, "failed", cause, confidence=sure)
    nan = _nan_at_end(case)
    if nan is not None:
        return _answer(case, "nan-loss", "unknown", nan, confidence=0.8)
    if cause is not None:
        echo = class_of(cause, started)
        if echo == "cancelled" and quiet is not None and quiet.before_end:
            return _answer(
                case, "hang", "stopped", None, confidence=0.6, underlying=echo, quiet=True
            )
        return _answer(case, echo, "failed", cause, confidence=0.5)
    if quiet is not None:
        return _answer(case, "hang", "unknown", None, confidence=0.6, quiet=True)
    slow = slowdown(case.training.steps)
    if slow is not None:
        return _slow(case, slow, "running" if case.ending.moving else "unknown")
    if case.ending.moving:
        return _answer(case, "running", "running", None, confidence=0.7)
    return _answer(case, "unknown-death", "unknown", None, confidence=0.4)


def _nan_at_end(case: _Case) -> Hit | None:
    """The first step of the last run of steps without a number, as a hit."""
    first = None
    for seen in reversed(case.training.steps):
        if seen.step.loss is None:
            continue
        if seen.step.loss == seen.step.loss and abs(seen.step.loss) != float("inf"):
            break
        first = seen
    if first is None or case.training.file is None:
        return None
    number = first.step.step
    return Hit(
        file=case.training.file,
        offset=first.offset,
        text=f"step {number}: loss {first.step.loss}" if number is not None else "loss nan",
        signature=case.catalogue.get("loss-nan-reported"),
        time=first.time,
    )


def _slow(case: _Case, slow: tuple[float, float], outcome: Outcome) -> Triage:
    before, after = slow
    answer = _answer(case, "throughput-degradation", outcome, None, confidence=0.7)
    summary = f"Steps became slower: {before:.3g} s before, {after:.3g} s at the end."
    return msgspec.structs.replace(answer, summary=summary)


def _answer(
    case: _Case,
    kind: str,
    outcome: Outcome,
    cause: Hit | None,
    *,
    confidence: float,
    underlying: str = "",
    quiet: bool = False,
    after: Sequence[Hit] = (),
) -> Triage:
    files = case.files
    phase = case.phase.phase if case.phase else ""
    steps = _progress(case)
    world = _world(files)
    everything = in_order([*case.fatal, *after])
    culprits: tuple[LogCulprit, ...] = ()
    if cause is not None and kind not in ("soft-success", "completed", "running"):
        culprits = name_culprits(cause, kind, everything, files, world)
    ends = [f.last_time for f in files if f.last_time is not None]
    begins = [f.first_time for f in files if f.first_time is not None]
    end = max(ends, default=None)
    since = case.phase.time if case.phase else None
    advice = case.catalogue.advice_for(kind, phase)
    return Triage(
        kind=_checked(kind),
        outcome=outcome,
        summary=_summary(kind, cause, culprits[0].rank if culprits else None, steps, quiet),
        confidence=confidence,
        signature=cause.signature.id if cause else "",
        cause=(cause.signature.cause if cause else "") or (advice[0].cause if advice else ""),
        culprits=culprits,
        evidence=_evidence(case, cause, everything, [c.rank for c in culprits]),
        next_steps=_next_steps(cause, advice, steps, kind),
        playbook=next((a.playbook for a in advice if a.playbook), ""),
        first_error_at=cause.time if cause else None,
        first_error_rank=culprits[0].rank if culprits else cause.origin.rank if cause else None,
        underlying=underlying,
        exception=_masked_exception(cause),
        phase=phase,
        phase_seconds=round(end - since, 1) if end and since and end >= since else None,
        progress=steps,
        echoes=_echoes(case, cause, everything),
        facts={key: mask(value) for f in reversed(files) for key, value in f.facts.items()},
        started_at=min(begins, default=None),
        ended_at=end,
        files=len(files),
        bytes=sum(f.file.size for f in files),
        sampled=tuple(f"{f.file.label}: {f.sampled}" for f in files if f.sampled),
        problems=tuple(f"{f.file.label}: {f.problem}" for f in files if f.problem),
    )


def _checked(kind: str) -> FailureClass:
    return msgspec.convert(kind, FailureClass)  # type: ignore[no-any-return]


def _masked_exception(cause: Hit | None) -> LogException | None:
    if cause is None or cause.exception is None:
        return None
    raised = cause.exception
    return msgspec.structs.replace(raised, message=mask(raised.message))


def _world(files: Sequence[FileFacts]) -> int | None:
    sizes = [int(f.facts["world_size"]) for f in files if f.facts.get("world_size", "").isdigit()]
    return max(sizes, default=None)


def _progress(case: _Case) -> StepProgress:
    totals = [int(f.facts["total_steps"]) for f in case.files if "total_steps" in f.facts]
    saved, at = case.question.saved_step, case.question.saved_at
    for facts in case.files:
        for hit in facts.hits:
            if hit.signature.id == "checkpoint-saved" and hit.groups.get("step", "").isdigit():
                step = int(hit.groups["step"])
                if saved is None or step > saved:
                    saved, at = step, hit.time
    ends = [f.last_time for f in case.files if f.last_time is not None]
    return progress(case.training, saved, at, max(ends, default=None), max(totals, default=None))


def _line(case: _Case, hit: Hit, note: str) -> LogLine:
    text = mask(hit.text)
    return LogLine(
        file=case.files[hit.file].file.label,
        line=case.number(hit.file, hit.offset),
        text=text if len(text) <= _SHOWN else text[: _SHOWN - 1] + "…",
        note=note,
        time=hit.time,
    )


def _evidence(
    case: _Case, cause: Hit | None, hits: Sequence[Hit], ranks: Sequence[int | None]
) -> tuple[LogLine, ...]:
    """The first cause, what the culprits said, then one line of each other signature."""
    if cause is None:
        lines = [_line(case, hit, "trouble") for hit in _one_each(hits, set())[:_EVIDENCE]]
        return tuple(_last_signs(case) + lines)
    lines = [_line(case, cause, "first cause")]
    seen = {cause.signature.id}
    for hit in hits:
        if hit is not cause and hit.origin.rank is not None and hit.origin.rank in ranks:
            lines.append(_line(case, hit, "of the culprit"))
            if len(lines) >= _EVIDENCE // 2:
                break
    kind = cause.signature.kind
    for hit in _one_each(hits, seen)[: _EVIDENCE - len(lines)]:
        lines.append(_line(case, hit, "same cause" if hit.signature.kind == kind else "echo"))
    return tuple(lines)


def _one_each(hits: Sequence[Hit], seen: set[str]) -> list[Hit]:
    first = []
    for hit in hits:
        if hit.signature.id not in seen:
            seen.add(hit.signature.id)
            first.append(hit)
    return first


def _last_signs(case: _Case) -> list[LogLine]:
    """Where nothing went wrong on paper: the last step and the last line."""
    lines = []
    if case.ending.marker is not None:
        lines.append(_line(case, case.ending.marker, "the end of training"))
    if case.training.steps and case.training.file is not None:
        step, file = case.training.steps[-1], case.files[case.training.file]
        number = f"step {step.step.step}" if step.step.step is not None else "last step line"
        lines.append(
            LogLine(
                file=file.file.label,
                line=case.number(case.training.file, step.offset),
                text=number,
                note="last step",
                time=step.time,
            )
        )
    ended = [(f.last_time or 0.0, i) for i, f in enumerate(case.files) if f.last_line]
    if ended:
        index = max(ended)[1]
        facts = case.files[index]
        lines.append(
            LogLine(
                file=facts.file.label,
                line=case.number(index, facts.last_offset),
                text=mask(facts.last_line)[:_SHOWN],
                note="last line",
                time=facts.last_time,
            )
        )
    return lines


def _echoes(case: _Case, cause: Hit | None, hits: Sequence[Hit]) -> tuple[Echo, ...]:
    groups: dict[tuple[str, str], list[Hit]] = {}
    for hit in hits:
        if cause is None or hit.signature.id != cause.signature.id:
            groups.setdefault((hit.signature.kind, hit.signature.id), []).append(hit)
    for hit in in_order(case.survived):
        groups.setdefault(("survived", hit.signature.id), []).append(hit)
    for facts in case.files:
        for hit in facts.hits:
            if hit.signature.role == "harmless":
                groups.setdefault(("harmless", hit.signature.id), []).append(hit)
    return tuple(
        Echo(
            kind=kind,
            signature=name,
            count=_count(case, kind, name, found),
            first=_line(case, found[0], kind),
            ranks=tuple(sorted({h.origin.rank for h in found if h.origin.rank is not None}))[:64],
        )
        for (kind, name), found in sorted(groups.items(), key=lambda item: _echo_order(item[0][0]))
    )[:40]


def _count(case: _Case, kind: str, name: str, found: Sequence[Hit]) -> int:
    if kind == "survived":
        return sum(hit.repeated for hit in found)
    return sum(f.counts.get(name, 0) for f in case.files)


def _echo_order(kind: str) -> int:
    return 200 if kind == "harmless" else 100 if kind == "survived" else tier(kind)


def _next_steps(
    cause: Hit | None, advice: Sequence[object], steps: StepProgress, kind: str
) -> tuple[str, ...]:
    found: dict[str, None] = {}
    if cause is not None and kind != "soft-success":
        found.update(dict.fromkeys(cause.signature.remedy))
    for item in advice:
        found.update(dict.fromkeys(getattr(item, "remedy", ())))
    if steps.lost_steps is not None and kind not in ("completed", "running", "soft-success"):
        found[
            f"Start again from the checkpoint of step {steps.checkpoint_step}: "
            f"{steps.lost_steps} steps have to be done again."
        ] = None
    return tuple(found)


def _summary(
    kind: str, cause: Hit | None, rank: int | None, steps: StepProgress, quiet: bool
) -> str:
    where = _where(steps)
    if kind == "completed":
        return f"Training came to its end ({where})."
    if kind == "running":
        return f"Training goes on ({where})."
    if kind == "soft-success":
        return f"Training came to its end ({where}); only the teardown went wrong."
    if kind == "unknown-death" and cause is None:
        return f"The logs stop {where} and do not say why."
    if kind == "hang" and (quiet or cause is None):
        return f"Nothing moved any more {where}."
    who = f" on rank {rank}" if rank is not None else ""
    text = mask(cause.text.strip()) if cause else ""
    return f"{kind}{who} {where}: {text[:200]}"


def _where(steps: StepProgress) -> str:
    if steps.last_step is None:
        return "before any step was seen"
    total = f" of {steps.total_steps}" if steps.total_steps else ""
    return f"after step {steps.last_step}{total}"
