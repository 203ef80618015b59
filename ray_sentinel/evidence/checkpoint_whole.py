"""Whether a checkpoint is complete, by the file that its writer writes last."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from ray_sentinel import regex as re
from ray_sentinel.evidence.checkpoint_layouts import Layout

_TMP = re.compile(
    r"(?:\.orbax-checkpoint-tmp|\.tmp(?:-|$|\d)|tmp[-_]|^\.|_tmp$|\.incomplete$|\.partial$|\.part$)"
)
_HALF = re.compile(r"\.(?:tmp|incomplete|part(?:ial)?)$")
_SHARD = re.compile(r"-(?P<number>\d{5})-of-(?P<total>\d{5})\.(?:safetensors|bin|pt)$")
_LAST_WRITTEN = {
    "transformers": ("trainer_state.json",),
    "orbax": ("_CHECKPOINT_METADATA", "commit_success.txt"),
    "dcp": (".metadata",),
}


def refined(layout: Layout, names: Collection[str]) -> Layout:
    """The layout, determined again once the names of the files below its folder are known."""
    if any(name.endswith(".distcp") for name in names):
        return "dcp"
    if any("_CHECKPOINT_METADATA" in name or "ocdbt" in name for name in names):
        return "orbax"
    return layout


def why_incomplete(
    root: str,
    layout: Layout,
    names: Collection[str],
    sizes: Sequence[tuple[str, int]],
    alone: bool = True,
) -> str:
    """Why the checkpoint at ``root`` counts as half-written; empty if it is complete.

    ``names`` are its files relative to it, ``sizes`` the (path, bytes) of the same files. ``alone``
    is whether no neighbouring checkpoint holds a trainer's state.
    """
    if _TMP.search(root.rsplit("/", 1)[-1]):
        return "it is a temporary folder or file"
    half = next((path for path, _ in sizes if _HALF.search(path)), "")
    if half:
        return f"{half} is a temporary file"
    if layout == "file" and sizes and sizes[0][1] == 0:
        return "it is empty"
    if any(name.rsplit("/", 1)[-1].endswith("-unfinished") for name in names):
        return "its writer has not taken its mark 'unfinished' away"
    markers = _LAST_WRITTEN.get(layout, ())
    if markers and not _has_marker(layout, markers, names, alone):
        return f"{markers[0]}, which is written last, is missing"
    if layout == "dcp" and not any(size for path, size in sizes if path.endswith(".distcp")):
        # A single empty file is possible: a rank, or one of its writing threads, had nothing to
        # save.
        return "all its .distcp files are empty"
    return _missing_shards(names)


def holds_state(names: Collection[str]) -> bool:
    """Whether the state of a Transformers trainer was saved, which it does last."""
    return _any_named(names, _LAST_WRITTEN["transformers"])


def _any_named(names: Collection[str], wanted: Sequence[str]) -> bool:
    return any(name.rsplit("/", 1)[-1] in wanted for name in names)


def _has_marker(
    layout: Layout, markers: Sequence[str], names: Collection[str], alone: bool
) -> bool:
    if _any_named(names, markers):
        return True
    # Models that are saved without a trainer's state are whole with their weights; a trainer writes
    # those first.
    begun = ("optimizer", "scheduler", "rng_state", "global_step")
    return layout == "transformers" and alone and not any(n.startswith(begun) for n in names)


def _missing_shards(names: Collection[str]) -> str:
    """Shards say how many there are: model-00001-of-00004.safetensors."""
    found: dict[tuple[str, int], set[int]] = {}
    for name in names:
        if match := _SHARD.search(name):
            key = (name[: match.start()], int(match["total"]))
            found.setdefault(key, set()).add(int(match["number"]))
    for (stem, total), numbers in found.items():
        if len(numbers) < total:
            return f"{len(numbers)} of the {total} shards of {stem} are there"
    return ""
