"""Checkpoints in a listing of files: which steps, which are whole, how large and how often.

Recognised layouts: ``step_N/``, ``global_step_N/`` and ``global_stepN/`` (verl, DeepSpeed),
``checkpoint-N/`` (Transformers), ``iter_N/`` (Megatron, with
``latest_checkpointed_iteration.txt``), bare ``N/`` folders of Orbax (``_CHECKPOINT_METADATA``,
``.orbax-checkpoint-tmp``), torch DCP folders (``.metadata`` beside ``*.distcp``), Ray Train's
``checkpoint_00012``, and single files such as ``checkpoint_step_00010000.pt``,
``epoch=3-step=1000.ckpt``, ``ep0-ba1000-rank0.pt`` or ``ckpt_1000.pt`` (see
``checkpoint_layouts``). ``latest`` may be a link, a file that names the step, or absent.

A checkpoint is complete once the file exists that its writer writes last: DCP's ``.metadata``,
Orbax's ``_CHECKPOINT_METADATA`` or ``commit_success.txt``, Megatron's tracker, Transformers'
``trainer_state.json``, DeepSpeed's ``latest`` (see ``checkpoint_whole``). Without such a file one
is whole if it is no temporary folder, holds no ``.tmp`` or ``.incomplete`` file, lacks none of its
numbered shards, and is not smaller than half the usual size.
"""

from __future__ import annotations

import itertools
import statistics
from collections.abc import Iterable, Mapping, Sequence

import msgspec

from ray_sentinel import regex as re
from ray_sentinel.evidence.checkpoint_layouts import Key, Layout, key_of
from ray_sentinel.evidence.checkpoint_whole import holds_state, refined, why_incomplete
from ray_sentinel.evidence.minority import median_of_others

_WRITTEN_LAST = ("latest_checkpointed_iteration.txt", "latest")
_TRACKERS = (
    "latest_checkpointed_iteration.txt",
    "latest",
    "latest.txt",
    "latest_checkpoint",
    "last_checkpoint",
)
"""Names of the small files that say which checkpoint is the last."""


class FolderEntry(msgspec.Struct, frozen=True, kw_only=True):
    """A file below the checkpoint folder. ``path`` is relative and uses ``/``."""

    path: str
    size: int = 0
    modified: float = 0.0


class Checkpoint(msgspec.Struct, frozen=True, kw_only=True):
    """One checkpoint. ``modified`` is the newest modification time of its files."""

    step: int
    path: str
    layout: Layout
    tier: str = ""
    """The storage tier, "memory", "local" or "remote", where the path shows it; otherwise empty."""
    complete: bool = True
    why: str = ""
    """Why the checkpoint counts as half-written."""
    size: int = 0
    files: int = 0
    modified: float = 0.0


class CheckpointFacts(msgspec.Struct, frozen=True, kw_only=True):
    """All checkpoints of a folder, by step."""

    checkpoints: tuple[Checkpoint, ...] = ()
    latest_step: int | None = None
    """The step that ``latest`` (link or file) points to; without it, the newest complete one."""
    latest_complete: Checkpoint | None = None
    interval_steps: int | None = None
    """The usual number of steps between two checkpoints."""
    interval_seconds: float | None = None
    age_seconds: float | None = None
    """Seconds since the newest complete checkpoint was written."""
    total_bytes: int = 0
    problems: tuple[str, ...] = ()


def read_listing(
    entries: Iterable[FolderEntry],
    links: Mapping[str, str] | None = None,
    texts: Mapping[str, str] | None = None,
    now: float | None = None,
) -> CheckpointFacts:
    """The checkpoints in ``entries``.

    ``links`` are links below the folder and their targets, ``texts`` the contents of tracker files
    (``latest``, ``latest_checkpointed_iteration.txt``), ``now`` the time that ages count from.
    """
    grouped = _grouped(entries)
    tracked = _tracked_steps(links or {}, texts or {})
    stateful = {
        _folder(root) for (root, _, _), files in grouped.items() if holds_state(_names(root, files))
    }
    made = [
        _checkpoint(root, layout, step, files, _folder(root) not in stateful)
        for (root, layout, step), files in grouped.items()
    ]
    made = _judge_tracked(_judge_sizes(made), tracked)
    made.sort(key=lambda c: (c.step, c.modified, c.path))
    whole = [c for c in made if c.complete]
    newest = max(whole, key=lambda c: (c.step, c.modified), default=None)
    pointed = max(tracked.values(), default=None)
    steps = sorted({c.step for c in whole})
    return CheckpointFacts(
        checkpoints=tuple(made),
        latest_step=pointed if pointed is not None else newest.step if newest else None,
        latest_complete=newest,
        interval_steps=_interval(steps),
        interval_seconds=_interval_seconds(whole),
        age_seconds=max(0.0, now - newest.modified) if now is not None and newest else None,
        total_bytes=sum(c.size for c in made),
        problems=tuple(_problems(made, tracked)),
    )


def _grouped(entries: Iterable[FolderEntry]) -> dict[Key, list[FolderEntry]]:
    """(folder or file, layout, step) → its files."""
    found: dict[Key, list[FolderEntry]] = {}
    for entry in entries:
        key = key_of(entry.path)
        if key is not None:
            found.setdefault(key, []).append(entry)
    return found


def _folder(path: str) -> str:
    return path.rpartition("/")[0]


def _names(root: str, files: Iterable[FolderEntry]) -> set[str]:
    return {entry.path[len(root) + 1 :] for entry in files}


def _checkpoint(
    root: str, layout: Layout, step: int, files: Sequence[FolderEntry], alone: bool
) -> Checkpoint:
    names = _names(root, files) if layout != "file" else set()
    layout = refined(layout, names)
    why = why_incomplete(root, layout, names, [(one.path, one.size) for one in files], alone)
    return Checkpoint(
        step=step,
        path=root,
        layout=layout,
        tier=_tier(root),
        complete=not why,
        why=why,
        size=sum(entry.size for entry in files),
        files=len(files),
        modified=max((entry.modified for entry in files), default=0.0),
    )


def _tier(path: str) -> str:
    lower = path.lower()
    if "/shm" in lower or "memory" in lower or "ramdisk" in lower:
        return "memory"
    if lower.startswith(("s3:", "gs:", "az:")) or "s3" in lower.split("/") or "remote" in lower:
        return "remote"
    if "nvme" in lower or "local" in lower.split("/") or "scratch" in lower:
        return "local"
    return ""


def _judge_sizes(made: Sequence[Checkpoint]) -> list[Checkpoint]:
    """A checkpoint of less than half the others' usual size is still being written, or was cut
    off."""
    sizes: dict[tuple[str, str], list[int]] = {}
    for item in made:
        if item.complete:
            sizes.setdefault((item.layout, _folder(item.path)), []).append(item.size)
    for of_layout in sizes.values():
        of_layout.sort()
    judged = []
    for item in made:
        of_layout = sizes.get((item.layout, _folder(item.path)), [])
        if item.complete and len(of_layout) > 2:
            usual = median_of_others(of_layout, item.size)
            if item.size * 2 < usual:
                why = f"{item.size} bytes, where the others have {int(usual)}"
                item = msgspec.structs.replace(item, complete=False, why=why)
        judged.append(item)
    return judged


def _judge_tracked(made: Sequence[Checkpoint], tracked: Mapping[str, int]) -> list[Checkpoint]:
    """Megatron and DeepSpeed name a checkpoint in their tracker when it is whole, not before."""
    newest: dict[str, tuple[int, str]] = {}
    for path, step in tracked.items():
        folder, _, name = path.rpartition("/")
        if name in _WRITTEN_LAST:
            newest[folder] = (step, name)
    judged = []
    for item in made:
        folder, _, name = item.path.rpartition("/")
        step, tracker = newest.get(folder, (item.step, ""))
        if item.complete and item.step > step and name.startswith(("iter_", "global_step")):
            why = f"{tracker}, which is written last, still names step {step}"
            item = msgspec.structs.replace(item, complete=False, why=why)
        judged.append(item)
    return judged


def _tracked_steps(links: Mapping[str, str], texts: Mapping[str, str]) -> dict[str, int]:
    found = {}
    for path, target in (*links.items(), *texts.items()):
        if is_tracker(path):
            match = re.search(r"(\d+)(?:\D*)$", target.strip())
            if match is not None:
                found[path] = int(match.group(1))
    return found


def is_tracker(path: str) -> bool:
    """Whether a file's name marks it as one that names the newest checkpoint."""
    return path.rsplit("/", 1)[-1] in _TRACKERS


def _interval(steps: Sequence[int]) -> int | None:
    gaps = [b - a for a, b in itertools.pairwise(steps)]
    return int(statistics.median(gaps)) if gaps else None


def _interval_seconds(whole: Sequence[Checkpoint]) -> float | None:
    times = [c.modified for c in sorted(whole, key=lambda c: c.step)]
    gaps = [b - a for a, b in itertools.pairwise(times) if b > a]
    return statistics.median(gaps) if gaps else None


def _problems(made: Sequence[Checkpoint], tracked: Mapping[str, int]) -> Iterable[str]:
    for item in made:
        if not item.complete:
            yield f"{item.path} is half-written: {item.why}"
    steps: dict[int, bool] = {}
    for c in made:
        steps[c.step] = steps.get(c.step, False) or c.complete
    for path, step in tracked.items():
        if step not in steps:
            yield f"{path} points to step {step}, which is not there"
        elif not steps[step]:
            yield f"{path} points to step {step}, which is half-written: take an earlier one"
