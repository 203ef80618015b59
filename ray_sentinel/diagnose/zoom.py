"""A second read at full resolution around the onset, for jobs that are too long to be read like
that as a whole.

A long job is judged with wide cells, so the onset is known to within a cell. The playbook that
explained it is run again over the hours around the onset. If it finds the same cause and the same
culprits there, its times replace the coarse ones; if not, a note says so and nothing is changed,
because it has seen less of the job.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from ray_sentinel.diagnose.case import JobCase
from ray_sentinel.diagnose.playbooks import Playbook
from ray_sentinel.diagnose.view import View
from ray_sentinel.model.diagnosis import Diagnosis, Link

BEFORE_SECONDS, AFTER_SECONDS = 4 * 3600.0, 2 * 3600.0
"""Seconds looked at before and after the onset: before it, enough to learn what was usual."""
WIDER = 1.5
"""How many times wider than the samples' interval cells must be for a second look to be worth
it."""


class Zoom(msgspec.Struct, frozen=True):
    """The result of the second read."""

    case: JobCase
    """The case of the hours around the onset."""
    diagnosis: Diagnosis
    note: str


def zoom(
    case: JobCase, diagnosis: Diagnosis, playbook: Playbook, progress: Callable[[str], None]
) -> Zoom | None:
    """Read again; None if the first read was equally fine, or if there is no onset."""
    onset = diagnosis.onset
    if diagnosis.outcome != "found" or onset is None or case.cell <= WIDER * case.view.interval:
        return None
    start = max(case.view.start, onset - BEFORE_SECONDS)
    end = min(case.view.end, onset + AFTER_SECONDS)
    if end <= start:
        return None
    progress(f"around the onset, {onset:.0f}")
    near = JobCase(View(case.view.source, start, end, progress=progress), case.logs, case.options)
    if near.cell >= case.cell:
        return None
    again = playbook.run(near)
    if not _same(diagnosis, again):
        note = (
            f"read in cells of {case.cell:.0f} s; the hours around the onset alone, in cells of "
            f"{near.cell:.0f} s, do not show the same: times are good to {case.cell:.0f} s"
        )
        return Zoom(near, diagnosis, note)
    note = (
        f"read in cells of {case.cell:.0f} s, and in cells of {near.cell:.0f} s around the onset, "
        "where the same is found"
    )
    return Zoom(near, refined(diagnosis, again, case.cell), note)


def _same(first: Diagnosis, second: Diagnosis) -> bool:
    culprits = [
        {(one.host, one.gpu, one.device, one.port) for one in answer.culprits}
        for answer in (first, second)
    ]
    return first.cause == second.cause and culprits[0] == culprits[1]


def refined(first: Diagnosis, second: Diagnosis, cell: float) -> Diagnosis:
    """``first`` with the times of ``second`` where both mean the same moment."""
    finer = {_name(link): link for link in reversed(second.chain)}
    chain = tuple(_closer(link, finer.get(_name(link)), cell) for link in first.chain)
    onset = first.onset
    if onset is not None and second.onset is not None and abs(second.onset - onset) <= 2 * cell:
        onset = second.onset
    return msgspec.structs.replace(first, chain=chain, onset=onset)


def _name(link: Link) -> tuple[str, str, str, str]:
    return link.role, link.host, link.gpu, link.metric


def _closer(link: Link, finer: Link | None, cell: float) -> Link:
    if finer is None or link.at is None or finer.at is None:
        return link
    if abs(finer.at - link.at) > 2 * cell + (link.uncertainty or 0.0):
        return link
    return msgspec.structs.replace(link, at=finer.at, uncertainty=finer.uncertainty)
