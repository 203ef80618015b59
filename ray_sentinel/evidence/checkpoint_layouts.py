"""Checkpoint layouts, recognised by the names of their folders and files."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from ray_sentinel import regex as re

Layout = Literal[
    "step",
    "transformers",
    "megatron",
    "deepspeed",
    "orbax",
    "dcp",
    "ray-train",
    "lightning",
    "file",
]
Key = tuple[str, Layout, int]
"""The identity of a checkpoint: folder or file, layout, step."""

_FOLDERS: tuple[tuple[re.Pattern[str], Layout], ...] = (
    (re.compile(r"^(?:tmp-)?checkpoint-(?P<step>\d+)$"), "transformers"),
    (re.compile(r"^iter_(?P<step>\d+)$"), "megatron"),
    (re.compile(r"^global_step_?(?P<step>\d+)$"), "deepspeed"),
    (
        re.compile(
            r"^(?:tmp[-_.])?(?:step|checkpoint_step|ckpt_step|train_step|samples)[-_=]?(?P<step>\d+)"
            r"(?:[._-]tmp)?$"
        ),
        "step",
    ),
    (re.compile(r"^checkpoint_(?P<step>\d+)$"), "ray-train"),
    # Lightning's and NeMo's, whose names are made of metrics: model--val_loss=5.1-step=1000-...
    (re.compile(r"^.*?\bstep=(?P<step>\d+)(?:-[^/]*)?(?:\.ckpt)?$"), "lightning"),
    (re.compile(r"^ep\d+-ba(?P<step>\d+)(?:-rank\d+)?$"), "step"),  # Composer
    (re.compile(r"^(?P<step>\d+)(?:\.orbax-checkpoint-tmp.*)?$"), "orbax"),
)
_SUFFIX = r"\.(?:pt|pth|ckpt|bin|safetensors|msgpack)(?P<tmp>\.tmp|\.incomplete|\.part)?$"
_FILES = (
    re.compile(
        r"^(?:.*?[-_=.])?(?:step|global_step|iter|iteration|ckpt|checkpoint|model|epoch=\d+-step)"
        r"[-_=]?(?P<step>\d+)" + _SUFFIX
    ),
    re.compile(r"^checkpoint_\d+_(?P<step>\d+)" + _SUFFIX),  # fairseq: epoch, updates
    re.compile(r"^ep\d+-ba(?P<step>\d+)-rank\d+" + _SUFFIX),  # Composer
)


def key_of(path: str) -> Key | None:
    """The checkpoint to which a file (a relative path) belongs, or None."""
    return _folder_key(path.split("/")) or _file_key(path)


def _file_key(path: str) -> Key | None:
    name = path.rpartition("/")[2]
    for pattern in _FILES:
        if match := pattern.match(name):
            return path, "file", int(match["step"])
    return None


def _folder_key(parts: Sequence[str]) -> Key | None:
    for depth, part in enumerate(parts[:-1]):
        for pattern, layout in _FOLDERS:
            match = pattern.match(part)
            if match is not None:
                return "/".join(parts[: depth + 1]), layout, int(match["step"])
    return None
