"""Stories of Ray jobs whose waits are told of, each played to its end: one function a story."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
from collections.abc import Callable

from tests.support.ray_story import RayStory


def stories() -> dict[str, Callable[[], RayStory]]:
    """All of them by name: the functions of these modules that make a story of nothing."""
    found = {}
    for module in pkgutil.iter_modules(__path__):
        for name, play in vars(importlib.import_module(f"{__name__}.{module.name}")).items():
            if not inspect.isfunction(play) or play.__module__ != f"{__name__}.{module.name}":
                continue
            signature = inspect.signature(play, eval_str=True)
            given = all(
                one.default is not one.empty or one.kind is one.VAR_KEYWORD
                for one in signature.parameters.values()
            )
            if signature.return_annotation is RayStory and given:
                found[name] = play
    return found
