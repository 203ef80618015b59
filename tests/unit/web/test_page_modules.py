"""The look at the page's JavaScript: clean as it is, and what it tells of mistakes."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.page_modules import FOLDER, problems
from tests.support.parts import require_module


@pytest.fixture(autouse=True)
def _parser() -> None:
    require_module("tree_sitter", "tree-sitter")
    require_module("tree_sitter_javascript", "tree-sitter-javascript")


def test_the_page_has_no_mistake_that_can_be_told_without_running_it() -> None:
    assert len(list(FOLDER.glob("*.js"))) > 10
    assert problems() == []


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("const one = (;", "it does not parse"),
        ("document.title = titel;", "nothing declares titel"),
        ("const f = ({ a }) => a + b;", "nothing declares b"),
        ("const f = (a = c) => a;", "nothing declares c"),
        ("const o = { shown };", "nothing declares shown"),
        ('import { gone } from "./other.js"; gone();', "./other.js offers no gone"),
        ('import { there } from "./nowhere.js"; there();', "there is no ./nowhere.js"),
        ('import { there } from "./other.js";', "there is not used"),
        ("document.body.innerHTML = location.hash;", "innerHTML makes markup of text"),
    ],
)
def test_a_mistake_is_told_with_its_place(text: str, told: str, tmp_path: Path) -> None:
    (tmp_path / "other.js").write_text("export function there() {}\n")
    (tmp_path / "page.js").write_text(f"\n{text}\n")
    (line,) = problems(tmp_path)
    assert line == f"page.js:2: {told}"


@pytest.mark.parametrize(
    "text",
    [
        'import { there as here } from "./other.js"; here();',
        'import { VALUE, pair } from "./other.js"; export { VALUE, pair as both };',
        "for (const [name, { at: [first], ...rest }] of new Map()) console.log(name, first, rest);",
        "try { JSON.parse(''); } catch { clearTimeout(1); } export const f = async (...b) => [b];",
        "export function f({ a = 1, b: [c] = [] }, d = a) { return `${c} ${d}`; }",
        "const o = { a: 1, ['b']: 2, c() { return this.a; } }; label: for (;;) break label;",
        "navigator.clipboard.write([]); class A { #x = 1; get x() { return this.#x; } } new A();",
    ],
)
def test_what_is_right_is_let_be(text: str, tmp_path: Path) -> None:
    (tmp_path / "other.js").write_text(
        "export const VALUE = 1;\nexport const [pair, { deep }] = [1, {}];\nfunction there() {}\n"
        "export { there };\nconsole.log(deep);\n"
    )
    (tmp_path / "page.js").write_text(text)
    assert problems(tmp_path) == []
