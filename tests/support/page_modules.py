"""A light look at the page's JavaScript, which no build step reads: ``make lint``.

Each module is parsed by Tree-sitter, a wheel that needs no Node. Told are syntax errors, names that
nothing declares, imports that nothing uses or that the named module does not offer, and markup
made of text. Scopes are not told apart: a name counts as declared if the module declares it
anywhere, so that a name that is told is wrong, and not each wrong name is told.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

FOLDER = Path(__file__).resolve().parents[2] / "ray_sentinel" / "web" / "static"
LANGUAGE = frozenset(
    "Array ArrayBuffer BigInt Boolean DataView Date Error Infinity Intl JSON Map Math NaN Number "
    "Object Promise Proxy RangeError Reflect RegExp Set String Symbol SyntaxError TypeError "
    "Uint8Array Float32Array Float64Array Int32Array WeakMap WeakSet decodeURIComponent "
    "encodeURIComponent globalThis isFinite isNaN parseFloat parseInt structuredClone undefined "
    "arguments".split()
)
BROWSER = frozenset(
    "AbortController AbortSignal Blob CSS CustomEvent DOMException Element Event EventSource "
    "FileReader Headers HTMLElement Image IntersectionObserver KeyboardEvent MessageChannel "
    "MutationObserver Node Path2D PointerEvent Request ResizeObserver Response SVGElement "
    "TextDecoder TextEncoder URL URLSearchParams WheelEvent Worker addEventListener "
    "cancelAnimationFrame clearInterval clearTimeout console crypto devicePixelRatio document "
    "fetch getComputedStyle getSelection history innerHeight innerWidth localStorage location "
    "matchMedia navigator performance queueMicrotask removeEventListener requestAnimationFrame "
    "requestIdleCallback screen scrollTo scrollX scrollY sessionStorage setInterval setTimeout "
    "window".split()
)
MARKUP = frozenset(
    ("innerHTML", "outerHTML", "insertAdjacentHTML", "write", "parseFromString", "srcdoc")
)
"""What makes markup of text: names of hosts and jobs would become elements."""
NAMES = ("identifier", "shorthand_property_identifier", "shorthand_property_identifier_pattern")
DECLARING = {
    "variable_declarator": "name",
    "function_declaration": "name",
    "generator_function_declaration": "name",
    "function_expression": "name",
    "class_declaration": "name",
    "arrow_function": "parameter",
    "catch_clause": "parameter",
    "for_in_statement": "left",
    "namespace_import": "",
    "formal_parameters": "",
}
"""What declares names → in which field; empty for all of its children."""


class ImportedName(NamedTuple):
    """A name of another module."""

    module: str
    name: str
    known_as: str
    line: int


class PageModule:
    """One parsed file."""

    def __init__(self, file: Path) -> None:
        self.file = file
        language = import_module("tree_sitter_javascript").language()
        sitter = import_module("tree_sitter")
        self._root = sitter.Parser(sitter.Language(language)).parse(file.read_bytes()).root_node
        self.declared: set[str] = set()
        self.exported: set[str] = set()
        self.imports: list[ImportedName] = []
        self.used: dict[str, int] = {}
        """Name → the first line."""
        self.wrong: list[str] = []
        for node in self._nodes(self._root):
            self._look(node)

    def _nodes(self, top: Any) -> Iterator[Any]:
        waiting = [top]
        while waiting:
            node = waiting.pop()
            yield node
            waiting += reversed(node.children)

    def _look(self, node: Any) -> None:
        line = node.start_point[0] + 1
        if node.type == "ERROR" or node.is_missing:
            self.wrong.append(f"{self.file.name}:{line}: it does not parse")
        elif node.type in DECLARING:
            field = DECLARING[node.type]
            parts = node.children_by_field_name(field) if field else node.children
            self.declared.update(name for part in parts for name in self._declared(part))
        elif node.type == "import_specifier":
            self._import(node, line)
        elif node.type == "export_statement":
            self._export(node)
        elif node.type == "property_identifier" and _text(node) in MARKUP:
            made = _text(node)
            # `navigator.clipboard.write` and a stream's are no markup.
            if made != "write" or _text(node.parent).startswith("document."):
                self.wrong.append(f"{self.file.name}:{line}: {made} makes markup of text")
        elif node.type in NAMES[:2] and not self._is_declaration(node):
            self.used.setdefault(_text(node), line)

    def _declared(self, pattern: Any) -> Iterator[str]:
        """The names in a pattern, without the defaults beside them."""
        if pattern.type in ("identifier", "shorthand_property_identifier_pattern"):
            yield _text(pattern)
            return
        default = pattern.child_by_field_name("right")
        for child in pattern.children:
            of_value = default is not None and child.id == default.id
            if not of_value and child.type != "computed_property_name":
                yield from self._declared(child)

    def _is_declaration(self, node: Any) -> bool:
        parent = node.parent
        if parent.type in ("import_specifier", "export_specifier", "namespace_import"):
            return True
        if parent.type == "formal_parameters":
            return True
        field = DECLARING.get(parent.type)
        return bool(field) and any(
            node.id == one.id for one in parent.children_by_field_name(field)
        )

    def _import(self, node: Any, line: int) -> None:
        statement = node
        while statement.type != "import_statement":
            statement = statement.parent
        module = _text(statement.child_by_field_name("source")).strip("'\"")
        name = _text(node.child_by_field_name("name"))
        alias = node.child_by_field_name("alias")
        known_as = name if alias is None else _text(alias)
        self.declared.add(known_as)
        self.imports.append(ImportedName(module, name, known_as, line))

    def _export(self, node: Any) -> None:
        what = node.child_by_field_name("declaration")
        if what is not None:
            for one in [what, *what.children]:
                for part in one.children_by_field_name("name"):
                    self.exported.update(self._declared(part))
        for clause in node.children:
            for one in clause.children if clause.type == "export_clause" else ():
                if one.type == "export_specifier":
                    known_as = one.child_by_field_name("alias") or one.child_by_field_name("name")
                    self.exported.add(_text(known_as))
                    self.used.setdefault(_text(one.child_by_field_name("name")), 0)


def _text(node: Any) -> str:
    return str(node.text.decode())


def problems(folder: Path = FOLDER) -> list[str]:
    """What is wrong with the modules of a folder, one line each."""
    modules = {file.name: PageModule(file) for file in sorted(folder.glob("*.js"))}
    found = []
    for name, module in modules.items():
        found += module.wrong
        if module.wrong:
            continue  # the rest would be guessed
        known = module.declared | LANGUAGE | BROWSER
        found += [
            f"{name}:{line}: nothing declares {used}"
            for used, line in module.used.items()
            if used not in known
        ]
        for one in module.imports:
            other = modules.get(one.module.removeprefix("./"))
            if other is None:
                found.append(f"{name}:{one.line}: there is no {one.module}")
            elif one.name not in other.exported:
                found.append(f"{name}:{one.line}: {one.module} offers no {one.name}")
            if one.known_as not in module.used:
                found.append(f"{name}:{one.line}: {one.known_as} is not used")
    return found


if __name__ == "__main__":
    told = problems()
    sys.stdout.writelines(f"{line}\n" for line in told)
    sys.exit(bool(told))
