"""Whether a checkpoint is whole, by what its writer writes last."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence

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
    """The layout, now that the files' names below its folder are known."""
    if any(name.endswith(".distcp") for name in names):
        return "dcp"
    if any("_CHECKPOINT_METADATA" in name or "ocdbt" in name for name in names):
        return "orbax"
    return layout


def why_incomplete(
    root: str, layout: Layout, names: Collection[str], sizes: Sequence[tuple[str, int]]
) -> str:
    """Why the checkpoint at ``root`` counts as half-written; empty where it is whole.

    ``names`` are its files relative to it, ``sizes`` (path, bytes) of the same files.
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
    if markers and not _has_marker(layout, markers, names):
        return f"{markers[0]}, which is written last, is missing"
    if layout == "dcp":
        empty = next((path for path, size in sizes if size == 0 and path.endswith(".distcp")), "")
        if empty:
            return f"{empty} is empty"
    return _missing_shards(names)


def _has_marker(layout: Layout, markers: Sequence[str], names: Collection[str]) -> bool:
    if any(name.rsplit("/", 1)[-1] in markers for name in names):
        return True
    # A model saved alone, without a trainer's state, is whole with its weights.
    return layout == "transformers" and not any(
        name.startswith(("optimizer", "scheduler", "rng_state", "global_step")) for name in names
    )


def _missing_shards(names: Collection[str]) -> str:
    """Shards say of how many they are: model-00001-of-00004.safetensors."""
    found: dict[tuple[str, int], set[int]] = {}
    for name in names:
        if match := _SHARD.search(name):
            key = (name[: match.start()], int(match["total"]))
            found.setdefault(key, set()).add(int(match["number"]))
    for (stem, total), numbers in found.items():
        if len(numbers) < total:
            return f"{len(numbers)} of the {total} shards of {stem} are there"
    return ""
