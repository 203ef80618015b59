"""Code uses what a class or module offers: nothing whose name begins with an underscore.

A test that reaches into an object holds its inside fast, and passes while its outside is wrong.
The same is true of what a test replaces: code that needs another part in a test takes it as an
argument, or offers it under a public name.

In the sources, only a class itself uses its private names. Private names of others' libraries are
listed here, each with the reason why there is no public way: a new version may change them.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[1]
ROOT = TESTS.parent
SOURCES = ("ray_sentinel", "exporters", "plugins", "bench", "examples", "docs")
OFFERED = {
    "_exit",
    "_current_frames",
    "_replace",
    "_make",
    "_asdict",
    "_fields",
    "_repr_html_",
    "_repr_markdown_",
    "_thread",
}
"""Of ``os``, ``sys``, named tuples, Jupyter and the standard library, whose documents name them:
public in spite of their names."""
FOREIGN = {
    # Ray: its state API asks the dashboard, which a cluster may lack, and which its troubles slow.
    "ray._private": "what this process is connected to, and the tables of the control store",
    "ray._raylet": "a placement group by its id (by name, Ray finds those of one namespace)",
    "_connect_and_get_accessor": "the tables of the control store, over the connection at hand",
    "_internal_kv_get": "what the autoscaler and `ray job submit` keep in the control store",
    "_internal_kv_list": "as _internal_kv_get",
    "ray.autoscaler._private": "what `ray status` prints, which as a program would need the token",
    "_global_node": "the folder of this session's logs",
    "_conn_str": "the address of a Ray Client's server",
    "ray.train._internal": "whether this is a worker of Ray Train: get_context warns elsewhere",
    "ray.train.v2._internal": "as ray.train._internal, where get_context raises; and the callback "
    "that learns when workers start, which a UserCallback doesn't",
    "_train_context": "as ray.train.v2._internal",
    # PyTorch and JAX
    "_C": "the flight recorder: torch.distributed offers no dump of it",
    "_distributed_c10d": "as _C",
    "torch._C": "as _C",
    "jax._src": "rank and size without starting the backends, as jax.process_index() does",
    # re2 and the standard library
    "_Regexp": "re2's own object: the wrapper computes on every match what few ask for",
    "_regexp": "as _Regexp",
    "_Anchor": "what Match of _Regexp takes",
    "_parser": "the parse tree of an expression, which Python 3.10 keeps in sre_parse",
    "_Unpickler": "the stack of an unpickler that failed, which the one in C keeps to itself",
}
"""Private names of others' libraries, or the packages below which they lie, and why they are used.
"""
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


def own_names(class_: ast.ClassDef) -> set[str]:
    """What a class defines: its methods and fields, also those that only methods set."""
    names: set[str] = set()
    for node in ast.walk(class_):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            names.add(node.name)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            names.add(node.id)
        elif (
            isinstance(node, ast.Attribute)
            and isinstance(node.ctx, ast.Store)
            and ast.unparse(node.value) in OWN
        ):
            names.add(node.attr)
    for node in class_.body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__slots__":
            names |= {
                str(one.value) for one in ast.walk(node.value) if isinstance(one, ast.Constant)
            }
    return names


def attributes(tree: ast.AST, own: frozenset[str] = frozenset()) -> Iterator[tuple[int, str, str]]:
    """Line, object and name of every private attribute that is used outside of its class."""
    for node in ast.iter_child_nodes(tree):
        if (
            isinstance(node, ast.Attribute)
            and private(node.attr)
            and node.attr not in own
            and (thing := ast.unparse(node.value)) not in OWN
        ):
            yield node.lineno, thing, node.attr
        inside = own | own_names(node) if isinstance(node, ast.ClassDef) else own
        yield from attributes(node, frozenset(inside))


def modules(tree: ast.Module) -> Iterator[tuple[int, str, str]]:
    """Line, package and name of all that is imported, also where it is looked up by its name."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom):
            yield from ((node.lineno, node.module or "", one.name) for one in node.names)
        elif isinstance(node, ast.Import):
            yield from ((node.lineno, "", one.name) for one in node.names)
        elif isinstance(node, ast.Call) and node.args and isinstance(node.args[0], ast.Constant):
            called = getattr(node.func, "attr", getattr(node.func, "id", ""))
            package, _, name = str(node.args[0].value).rpartition(".")
            if package and called in ("import_module", "get"):
                yield node.lineno, package, name


def is_of_same_package(package: list[str], name: str, home: tuple[str, ...]) -> bool:
    """Whether ``name`` is a private module of a package in which the file at ``home`` lies."""
    start = len(home) - len(package)
    places = (home[at : at + len(package)] for at in range(start + 1))
    if not package or tuple(package) not in places:
        return False
    below = [ROOT.joinpath(*home[:at], *package, name) for at in range(start + 1)]
    return any(path.is_dir() or path.with_suffix(".py").is_file() for path in below)


def source_uses(source: str, home: tuple[str, ...] = ()) -> Iterator[tuple[str, str]]:
    """``line: thing._name`` for every use of another's private name, and the name as in FOREIGN.

    ``home`` are the folders in which the file lies.
    """
    tree = ast.parse(source)
    for call, thing, name in by_name(tree):
        if thing not in OWN:
            yield f"{call.lineno}: {thing}.{name}", name
    for line, thing, name in attributes(tree):
        yield f"{line}: {thing}.{name}", name
    for line, package, name in modules(tree):
        parts = [*package.split("."), *name.split(".")] if package else name.split(".")
        for at, part in enumerate(parts):
            if private(part) and not is_of_same_package(parts[:at], part, home):
                whole = ".".join(parts[: at + 1])
                known = whole if whole in FOREIGN or at < len(parts) - 1 else part
                yield f"{line}: {'.'.join(parts)}", known
                break


@pytest.fixture(scope="module")
def found_in_sources() -> list[tuple[str, str]]:
    """Every use of another's private name in the sources, with its file, and the name."""
    return [
        (f"{path.relative_to(ROOT)}:{use}", name)
        for folder in SOURCES
        for path in sorted((ROOT / folder).rglob("*.py"))
        for use, name in source_uses(path.read_text(), path.relative_to(ROOT).parts[:-1])
    ]


def test_the_sources_use_nothing_private_of_ours(found_in_sources: list[tuple[str, str]]) -> None:
    found = [use for use, name in found_in_sources if name not in FOREIGN]
    assert found == [], "\n".join(found)


def test_every_foreign_name_that_is_listed_is_used(found_in_sources: list[tuple[str, str]]) -> None:
    assert set(FOREIGN) - {name for _, name in found_in_sources} == set()


def test_what_counts_as_a_use_in_the_sources() -> None:
    source = """
import _thread
from ray import _raylet
from ray._private import worker
from ray_sentinel.files import _inside, outside
from ray_sentinel_plugins._pci import ids
class Reader:
    _kind = 1
    __slots__ = ("_slot",)
    def __init__(self, other):
        self._mine = other._mine
        other._kind, other._slot, other.read()._theirs
        self.part._mine
        self.part._part
        Reader._kind, super()._anything
    @classmethod
    def made(cls):
        return cls()._mine
one._mine
args._run(args)
getattr(self, "_mine"), getattr(one, "_theirs")
modules.get("jax._src.distributed"), modules.get("_key")
importlib.import_module("ray._raylet")
os._exit(0)
"""
    found = list(source_uses(source, ("plugins", "ray_sentinel_plugins")))
    assert {f"{use.partition(':')[0]} {name}" for use, name in found} == {
        "3 ray._raylet",
        "4 ray._private",
        "5 _inside",
        "12 _theirs",
        "14 _part",
        "19 _mine",
        "20 _run",
        "21 _theirs",
        "22 jax._src",
        "23 ray._raylet",
    }


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
