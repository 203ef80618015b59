"""Where in a function's text a line is: in which loops, in which branches.

Two processes in one function, at two lines, can be ordered by its text: one behind a loop has left
it, and one inside has not. The text is read with Python's own parser (``ast``).
"""

from __future__ import annotations

import ast
import warnings
from collections.abc import Iterable, Iterator

from ray_sentinel.evidence.stacks.frames.names import last_name

LOOP, CHOICE, TRY = "loop", "choice", "try"

Blocks = tuple[str, ...]
"""The statements around a line, from the outermost to the innermost: "loop 12 body", "choice 20
orelse", "try 30 body"."""

_LOOPS = (ast.For, ast.AsyncFor, ast.While)
_TRIES = (ast.Try, getattr(ast, "TryStar", ast.Try))
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)


class PythonSource:
    """One Python file. Raises ValueError if this Python cannot parse the text."""

    def __init__(self, text: bytes | str) -> None:
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                self._module = ast.parse(text)
        except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
            raise ValueError(f"no Python that can be read: {error}") from error
        self._functions = [node for node in ast.walk(self._module) if isinstance(node, _FUNCTIONS)]

    def blocks(self, function: str, line: int) -> Blocks | None:
        """The blocks around ``line`` within the function; None if it is in no such function."""
        name = last_name(function)
        if name == "<module>":
            return _unique(_around(self._module, line))
        around = [
            node
            for node in self._functions
            if node.name == name and node.lineno <= line <= (node.end_lineno or 0)
        ]
        return _unique(_around(max(around, key=lambda node: node.lineno), line)) if around else None


def is_loop(block: str) -> bool:
    """Whether the block is a loop."""
    return block.startswith(LOOP)


def is_conditional(block: str) -> bool:
    """Whether a process that is past the block need not have been in it."""
    return block.startswith(CHOICE) or "handlers" in block


def same_statement(one: str, other: str) -> bool:
    """Whether two blocks are branches of one choice, or parts of one ``try``."""
    return one.split()[:2] == other.split()[:2]


def _unique(blocks: Iterable[str]) -> Blocks:
    return tuple(dict.fromkeys(blocks))


def _around(node: ast.AST, line: int) -> Iterator[str]:
    for branch, value in ast.iter_fields(node):
        for index, child in enumerate(value if isinstance(value, list) else [value]):
            if isinstance(child, ast.AST) and _spans(child, line):
                if label := _label(node, branch, index):
                    yield label
                yield from _around(child, line)


def _label(node: ast.AST, branch: str, index: int) -> str:
    if isinstance(node, _LOOPS):
        # The head of a loop is in the loop: there the next item is taken.
        inside = branch != "orelse"
        return f"{LOOP} {node.lineno} body" if inside else f"{CHOICE} {node.lineno} orelse"
    if isinstance(node, (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)):
        return f"{LOOP} {node.lineno} body"
    if isinstance(node, (ast.If, ast.IfExp)):
        return "" if branch == "test" else f"{CHOICE} {node.lineno} {branch}"
    if isinstance(node, ast.Match):
        return "" if branch == "subject" else f"{CHOICE} {node.lineno} case{index}"
    if isinstance(node, _TRIES):
        line = getattr(node, "lineno", 0)
        return f"{TRY} {line} {branch}{index if branch == 'handlers' else ''}"
    return ""


def _spans(node: ast.AST, line: int) -> bool:
    first: int | None = getattr(node, "lineno", None)
    if first is None:
        # Cases, arguments and comprehension heads have no line of their own.
        return any(_spans(child, line) for child in ast.iter_child_nodes(node))
    last: int = getattr(node, "end_lineno", None) or first
    return first <= line <= last
