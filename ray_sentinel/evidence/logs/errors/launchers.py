"""Launchers that start launchers: torchrun below srun, and the tasks that srun killed itself."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from ray_sentinel import regex as re
from ray_sentinel.evidence.logs.errors.signatures import Signature
from ray_sentinel.evidence.logs.records import FileFacts, Hit

TORCHRUN = frozenset({"child-failed", "exit-by-launcher"})
_ELASTIC = "torch/distributed/elastic/"
_SRUN = re.compile(r"\berror: [\w.-]+: tasks? \d")

_STEP_ENDED = frozenset({"srun-task-ended", "slurm-step-cancelled"})


def without_tasks(files: Sequence[FileFacts]) -> list[FileFacts]:
    """The files, with srun's task numbers not taken for ranks where torchrun started the ranks."""
    if not any(is_of_torchrun(hit) for facts in files for hit in facts.hits):
        return list(files)
    replace = msgspec.structs.replace
    return [
        replace(
            facts,
            hits=[replace(hit, origin=hit.origin.of_launcher()) for hit in facts.hits],
            processes=[origin.of_launcher() for origin in facts.processes],
        )
        for facts in files
    ]


def is_of_torchrun(hit: Hit) -> bool:
    """Whether the line is torchrun's report of how ranks ended."""
    told = hit.exit is not None or hit.signature.id in TORCHRUN
    return told or _ELASTIC in hit.text


def is_of_srun(hit: Hit) -> bool:
    """Whether the line is srun's report of how tasks ended."""
    return hit.exit is None and _SRUN.search(hit.text) is not None


def ended_by_srun(hits: Sequence[Hit], echo: Signature) -> list[Hit]:
    """``hits``, with the tasks that srun killed because a step was over marked as ``echo``."""
    ends = [hit for hit in hits if _ends_step(hit)]
    return [
        msgspec.structs.replace(hit, signature=echo)
        if _killed(hit) and any(_is_before(end, hit) for end in ends)
        else hit
        for hit in hits
    ]


def _ends_step(hit: Hit) -> bool:
    """A task failed, or the step was ended: srun kills what is still there."""
    if hit.signature.id in _STEP_ENDED:
        return True
    return hit.signature.id == "exit-code" and is_of_srun(hit)


def _killed(hit: Hit) -> bool:
    return hit.groups.get("signal") == "Killed" and is_of_srun(hit)


def _is_before(one: Hit, other: Hit) -> bool:
    if one.file == other.file:
        return one.offset < other.offset
    return one.time is not None and other.time is not None and one.time < other.time
