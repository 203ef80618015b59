"""Tests use what a class or module offers: nothing whose name begins with an underscore.

A test that reaches into an object holds its inside fast, and passes while its outside is wrong.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

TESTS = Path(__file__).parents[1]
OFFERED = {"_exit", "_replace", "_make", "_asdict", "_fields", "_repr_html_", "_repr_markdown_"}
"""Of ``os``, of named tuples and of Jupyter: public in spite of their names."""
OWN = {"self", "cls", "super()"}
SETTERS = {"setattr", "delattr"}


def private(name: str) -> bool:
    return name.startswith("_") and not name.startswith("__") and name not in OFFERED


def patched(tree: ast.Module) -> Iterator[tuple[ast.Call, str, str]]:
    """Every ``setattr(thing, "_name", ...)``, a monkeypatch's too."""
    for call in ast.walk(tree):
        if not isinstance(call, ast.Call) or len(call.args) < 2:
            continue
        function, (thing, name) = call.func, call.args[:2]
        called = getattr(function, "attr", getattr(function, "id", ""))
        if called in SETTERS and isinstance(name, ast.Constant) and private(str(name.value)):
            yield call, ast.unparse(thing), str(name.value)


def modules(tree: ast.Module) -> set[str]:
    """The names that a file imports, and which are no classes."""
    imports = [node for node in ast.walk(tree) if isinstance(node, (ast.Import, ast.ImportFrom))]
    names = {alias.asname or alias.name for node in imports for alias in node.names}
    return {name for name in names if name == name.lower()}


def imported(tree: ast.Module) -> Iterator[tuple[ast.ImportFrom, str]]:
    """Every private name of ours that is imported from a module."""
    found = (node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom))
    for node in found:
        # Modules of the plugins that are no collectors have such names, too.
        if (node.module or "").startswith("ray_sentinel") and node.module != "ray_sentinel_plugins":
            yield from ((node, one.name) for one in node.names if private(one.name))


def uses(source: str) -> list[str]:
    """``line: thing._name`` for every use of another's private attribute.

    A module may have one replaced for the time of a test, as a monkeypatch does, and be asked for
    the one that was there.
    """
    tree = ast.parse(source)
    replaced = {(thing, name) for _, thing, name in patched(tree) if thing in modules(tree)}
    found = [
        f"{call.lineno}: {thing}.{name}"
        for call, thing, name in patched(tree)
        if (thing, name) not in replaced and thing not in OWN
    ]
    found += [f"{node.lineno}: {node.module}.{name}" for node, name in imported(tree)]
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and private(node.attr):
            thing = ast.unparse(node.value)
            if thing not in OWN and (thing, node.attr) not in replaced:
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
reader._inner.size = files._other
os._exit(0)
self._mine = super()._mine
"""
    assert set(uses(source)) == {
        "4: ray_sentinel.files._inside",
        "8: reader._read",
        "9: reader._inner",
        "9: files._other",
    }
