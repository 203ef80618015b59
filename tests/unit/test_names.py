"""Names: a public class name stands once, so that a reader who searches for it finds one thing."""

from __future__ import annotations

import ast
from collections import defaultdict
from pathlib import Path

ROOT = Path(__file__).parents[2]
SOURCES = ("ray_sentinel", "plugins", "exporters")
ALLOWED = {"Options"}
"""A collector's and an exporter's own settings are its nested class of this name (``api``)."""


def test_a_public_class_name_stands_once() -> None:
    homes: defaultdict[str, list[str]] = defaultdict(list)
    for folder in SOURCES:
        for file in sorted((ROOT / folder).rglob("*.py")):
            for node in ast.walk(ast.parse(file.read_text())):
                if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                    homes[node.name].append(str(file.relative_to(ROOT)))
    assert len(homes) > 500, "the sources were found"
    twice = {name: files for name, files in homes.items() if len(files) > 1}
    assert set(twice) <= ALLOWED, twice
