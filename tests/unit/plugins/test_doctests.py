"""The examples in the plugins' docstrings are true."""

from __future__ import annotations

import doctest
import importlib
import pkgutil

import pytest

import ray_sentinel_plugins

NAMES = [
    module.name
    for module in pkgutil.walk_packages(ray_sentinel_plugins.__path__, "ray_sentinel_plugins.")
]


@pytest.mark.parametrize("name", NAMES)
def test_examples(name: str) -> None:
    assert doctest.testmod(importlib.import_module(name)).failed == 0
