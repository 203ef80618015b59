"""A job's configuration, if it is written to event files as texts.

MaxText and Megatron write one text for each parameter, Transformers all of them as one JSON object
with the tag ``args``. torch's and tensorboardX's ``add_text`` append ``/text_summary`` to a tag.
"""

from __future__ import annotations

import msgspec

from ray_sentinel import regex as re

_SUFFIX = "/text_summary"
_NAME = re.compile(r"[A-Za-z_][\w.-]{0,80}")
MAX_VALUE = 500
"""Most characters of a parameter's value; longer texts are samples or prose."""
_OBJECTS = frozenset({"args", "training_args", "hparams", "config"})


def parameters(tag: str, text: str) -> dict[str, str]:
    """The parameters in a text; empty if it is some other text.

    >>> parameters("steps/text_summary", "1000")
    {'steps': '1000'}
    >>> parameters("args/text_summary", '{"max_steps": 500, "fsdp": []}')
    {'max_steps': '500'}
    """
    name = tag.removesuffix(_SUFFIX)
    if name in _OBJECTS:
        return _members(text)
    if not _NAME.fullmatch(name) or len(text) > MAX_VALUE or "\n" in text.strip():
        return {}
    return {name: text.strip()}


def _members(text: str) -> dict[str, str]:
    try:
        found = msgspec.json.decode(text.encode())
    except (ValueError, RecursionError):
        return {}
    if not isinstance(found, dict):
        return {}
    return {
        str(name): str(value)[:MAX_VALUE]
        for name, value in found.items()
        if isinstance(value, (str, int, float, bool))
    }
