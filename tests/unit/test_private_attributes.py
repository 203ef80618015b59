"""Tests use what a class or module offers: nothing whose name begins with an underscore.

A test that reaches into an object holds its inside fast, and passes while its outside is wrong.
The same is true of what a test replaces: code that needs another part in a test takes it as an
argument, or offers it under a public name.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

TESTS = Path(__file__).parents[1]
OFFERED = {"_exit", "_replace", "_make", "_asdict", "_fields", "_repr_html_", "_repr_markdown_"}
"""Of ``os``, of named tuples and of Jupyter: public in spite of their names."""
OWN = {"self", "cls", "super()"}
BY_NAME = {"setattr", "delattr", "getattr", "hasattr", "object", "patch"}
"""Functions that take an attribute by its name: Python's, a monkeypatch's and a mock's."""


def private(name: str) -> bool:
    return name.startswith("_") and not name.startswith("__") and name not in OFFERED


def by_name(tree: ast.Module) -> Iterator[tuple[ast.Call, str, str]]:
    """Every ``setattr(thing, "_name", ...)`` and the like, also of a dotted ``"thing._name"``."""
    for call in ast.walk(tree):
        if not isinstance(call, ast.Call):
            continue
        function = call.func
        called = getattr(function, "attr", getattr(function, "id", ""))
        words = [one.value for one in call.args[:2] if isinstance(one, ast.Constant)]
        if called not in BY_NAME or not words or not isinstance(words[0], str):
            continue
        if isinstance(call.args[0], ast.Constant):
            thing, _, name = words[0].rpartition(".")
        else:
            thing, name = ast.unparse(call.args[0]), words[0]
        if private(name):
            yield call, thing, name


def imported(tree: ast.Module) -> Iterator[tuple[ast.ImportFrom, str]]:
    """Every private name of ours that is imported from a module."""
    found = (node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom))
    for node in found:
        # Modules of the plugins that are no collectors have such names, too.
        if (node.module or "").startswith("ray_sentinel") and node.module != "ray_sentinel_plugins":
            yield from ((node, one.name) for one in node.names if private(one.name))


def uses(source: str) -> list[str]:
    """``line: thing._name`` for every use of another's private attribute."""
    tree = ast.parse(source)
    found = [
        f"{call.lineno}: {thing}.{name}" for call, thing, name in by_name(tree) if thing not in OWN
    ]
    found += [f"{node.lineno}: {node.module}.{name}" for node, name in imported(tree)]
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and private(node.attr):
            thing = ast.unparse(node.value)
            if thing not in OWN:
                found.append(f"{node.lineno}: {thing}.{node.attr}")
    return found


def test_nothing_private_is_used() -> None:
    found = [
        f"{path.relative_to(TESTS)}:{use}"
        for path in sorted(TESTS.rglob("*.py"))
        if "fixtures" not in path.parts
        for use in uses(path.read_text())
    ]
    assert found == [], "\n".join(found)


def test_what_counts_as_a_use() -> None:
    source = """
import os
from ray_sentinel import files
from ray_sentinel.files import _inside, outside
from ray_sentinel_plugins import _pci
real = files._read
monkeypatch.setattr(files, "_read", None)
monkeypatch.setattr(reader, "_read", None)
reader._inner.size = files.other
monkeypatch.setattr("ray_sentinel.files._read", None)
mock.patch("ray_sentinel.files._read")
patch.object(reader, "_read")
getattr(reader, "_read")
monkeypatch.setattr(_pci, "ids", None)
monkeypatch.setattr("ray_sentinel_plugins._pci.ids", None)
monkeypatch.setattr(os, "_exit", None)
os._exit(0)
self._mine = super()._mine
"""
    assert set(uses(source)) == {
        "4: ray_sentinel.files._inside",
        "6: files._read",
        "7: files._read",
        "8: reader._read",
        "9: reader._inner",
        "10: ray_sentinel.files._read",
        "11: ray_sentinel.files._read",
        "12: reader._read",
        "13: reader._read",
    }
