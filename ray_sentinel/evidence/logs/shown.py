"""The lines that an answer shows: the evidence for it, and the echoes."""

from __future__ import annotations

from collections.abc import Sequence

from ray_sentinel.evidence.logs.case import SHOWN, LogAnalysis
from ray_sentinel.evidence.logs.causes import in_order, tier
from ray_sentinel.evidence.logs.records import Hit
from ray_sentinel.masking import mask
from ray_sentinel.model.triage import Echo, LogLine

_EVIDENCE = 12
_ECHOES = 40
_RANKS = 64


def evidence(
    case: LogAnalysis, cause: Hit | None, hits: Sequence[Hit], ranks: Sequence[int | None]
) -> tuple[LogLine, ...]:
    """The first cause, what the culprits wrote, then one line for each other signature."""
    if cause is None:
        lines = [case.show(hit, "trouble") for hit in _one_each(hits, set())[:_EVIDENCE]]
        return tuple(_last_signs(case) + lines)
    lines = [case.show(cause, "first cause")]
    own = [
        hit
        for hit in hits
        if hit is not cause and hit.origin.rank is not None and hit.origin.rank in ranks
    ][: _EVIDENCE // 2 - 1]
    lines += [case.show(hit, "of the culprit") for hit in own]
    shown = {id(hit) for hit in own}
    kind = cause.signature.kind
    more = [hit for hit in _one_each(hits, {cause.signature.id}) if id(hit) not in shown]
    for hit in more[: _EVIDENCE - len(lines)]:
        lines.append(case.show(hit, "same cause" if hit.signature.kind == kind else "echo"))
    return tuple(lines)


def _one_each(hits: Sequence[Hit], seen: set[str]) -> list[Hit]:
    first = []
    for hit in hits:
        if hit.signature.id not in seen:
            seen.add(hit.signature.id)
            first.append(hit)
    return first


def _last_signs(case: LogAnalysis) -> list[LogLine]:
    """The last step and the last line, for a job in whose logs nothing went wrong."""
    lines = []
    if case.ending.marker is not None:
        lines.append(case.show(case.ending.marker, "the end of training"))
    if case.training.steps and case.training.file is not None:
        step = case.training.steps[-1]
        number = f"step {step.step.step}" if step.step.step is not None else "last step line"
        lines.append(case.line(case.training.file, step.offset, number, "last step", step.time))
    ended = [(f.last_time or 0.0, i) for i, f in enumerate(case.files) if f.last_line]
    if ended:
        index = max(ended)[1]
        facts = case.files[index]
        lines.append(
            LogLine(
                file=facts.file.label,
                line=case.number(index, facts.last_offset),
                text=mask(facts.last_line)[:SHOWN],
                note="last line",
                time=facts.last_time,
            )
        )
    return lines


def echoes(case: LogAnalysis, cause: Hit | None, hits: Sequence[Hit]) -> tuple[Echo, ...]:
    """The other errors, grouped by signature: those in ``hits``, those that training survived, and
    the harmless ones."""
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
            first=case.show(found[0], kind),
            ranks=tuple(sorted({h.origin.rank for h in found if h.origin.rank is not None}))[
                :_RANKS
            ],
        )
        for (kind, name), found in sorted(groups.items(), key=lambda item: _echo_order(item[0][0]))
    )[:_ECHOES]


def _count(case: LogAnalysis, kind: str, name: str, found: Sequence[Hit]) -> int:
    if kind == "survived":
        return sum(hit.repeated for hit in found)
    return sum(f.counts.get(name, 0) for f in case.files)


def _echo_order(kind: str) -> int:
    return 200 if kind == "harmless" else 100 if kind == "survived" else tier(kind)
