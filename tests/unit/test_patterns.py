"""Every regular expression of the package runs in linear time, whatever text it is given.

They are found in the sources (each use of ``re``) and in the catalogue; there is no list to keep.
"""

from __future__ import annotations

import ast
import functools
import importlib
import importlib.util
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ray_sentinel import regex
from ray_sentinel.errors import ConfigError
from ray_sentinel.evidence.logs.errors.signatures import compile_rule, parse_entries
from ray_sentinel.linear_time import is_linear, parse

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ROOT = Path(__file__).parents[2]
PACKAGES = {
    "ray_sentinel": ROOT / "ray_sentinel",
    "ray_sentinel_plugins": ROOT / "plugins/ray_sentinel_plugins",
    "ray_sentinel_exporters": ROOT / "exporters/ray_sentinel_exporters",
}
ENGINES = {"ray_sentinel/regex.py", "ray_sentinel/linear_time.py"}
LENGTH = 24_000
SECONDS = 0.25
"""For ``LENGTH`` characters; a quadratic expression takes seconds, and half a core is enough."""


def sources() -> Iterator[tuple[str, Path]]:
    """(module, file) of all that is imported; the demo's scripts are programs of their own."""
    for name, folder in PACKAGES.items():
        for file in sorted(folder.rglob("*.py")):
            if "scripts" in file.parts or file.name == "__main__.py":
                continue
            parts = (name, *file.relative_to(folder).with_suffix("").parts)
            yield ".".join(part for part in parts if part != "__init__"), file


def test_nothing_uses_the_backtracking_engine_unchecked() -> None:
    found = [
        f"{file.relative_to(ROOT)}:{node.lineno}"
        for _, file in sources()
        for node in ast.walk(ast.parse(file.read_text()))
        if (
            isinstance(node, ast.Import)
            and any(name.name in ("re", "regex") for name in node.names)
        )
        or (isinstance(node, ast.ImportFrom) and node.module == "re")
    ]
    assert {place.rsplit(":", 1)[0] for place in found} <= ENGINES, found


@functools.lru_cache(maxsize=1)
def patterns() -> list[tuple[str, str | bytes, int, bool]]:
    """(where, expression, flags, whether it is for the text's front only)."""
    found: dict[tuple[str | bytes, int, bool], str] = {}
    for module, file in sources():
        tree = ast.parse(file.read_text())
        if file.relative_to(ROOT).as_posix() in ENGINES or "regex as re" not in file.read_text():
            continue
        names = vars(importlib.import_module(module))
        for value in _compiled_in(names.values()):
            found.setdefault((value.pattern, value.given_flags, value.anchored), module)
        for node in ast.walk(tree):
            if use := _use(node, names):
                found.setdefault(use, f"{module}:{getattr(node, 'lineno', 0)}")
    for file in sorted((ROOT / "ray_sentinel/evidence/logs/catalogue").glob("*.toml")):
        for entries in tomllib.loads(file.read_text()).values():
            for entry in entries:
                for text in (*entry.get("pattern", ()), *entry.get("unless", ())):
                    found.setdefault((text, 0, False), f"{file.name}: {entry['id']}")
    return [(where, *key) for key, where in found.items()]


def _compiled_in(values: Any, depth: int = 4) -> Iterator[Any]:
    for value in values:
        if isinstance(value, regex.LazyPattern):
            yield value
        elif depth and isinstance(value, tuple | list | dict):
            inner = value.values() if isinstance(value, dict) else value
            yield from _compiled_in(inner, depth - 1)
        elif depth and hasattr(value, "regex") and hasattr(value, "unless"):
            yield from _compiled_in((value.regex, value.unless), depth - 1)


def _use(node: ast.AST, names: dict[str, Any]) -> tuple[str | bytes, int, bool] | None:
    if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)):
        return None
    if not (isinstance(node.func.value, ast.Name) and node.func.value.id == "re"):
        return None
    if node.func.attr in ("escape", "check") or not node.args:
        return None
    try:
        pattern = eval(compile(ast.Expression(node.args[0]), "here", "eval"), names)
    except NameError:
        return None  # made of a function's own variables: it is checked where it is used
    flags = [arg for arg in node.args[1:] if "re." in ast.unparse(arg)]
    flags += [keyword.value for keyword in node.keywords if keyword.arg == "flags"]
    value = eval(compile(ast.Expression(flags[0]), "here", "eval"), names) if flags else 0
    return pattern, int(value), node.func.attr == "compile_anchored"


def test_all_are_found() -> None:
    assert len(patterns()) > 1200
    where = {place.split(":")[0].rsplit(".", 1)[0] for place, *_ in patterns()}
    assert {"ray_sentinel.evidence.logs", "ray_sentinel_plugins._kernel_log", "frames"} <= where


def test_each_is_proved_linear_or_runs_in_re2() -> None:
    for where, pattern, flags, anchored in patterns():
        try:
            regex.check(regex.LazyPattern(pattern, flags, anchored))  # type: ignore[arg-type]
        except re.error as error:
            pytest.fail(f"{where}: {pattern!r}: {error}")


def pumped(pattern: str | bytes, flags: int, length: int = LENGTH) -> Iterator[Any]:
    """Texts of ``length`` that make a backtracking engine try as much as the pattern lets it."""
    tree = parse(pattern, flags)
    example = _example(tree)
    texts = {_filled(example[:40] or "a", length)}
    for prefix, atom, more in _repeats(tree, "", 0):
        for pump in (atom, more):
            texts.add(prefix + _filled(pump, length) + "\x00")
            texts.add(_filled(prefix[-20:] + pump, length) + "\x00")
    for text in sorted(texts)[:24]:
        yield text.encode("latin-1", "replace") if isinstance(pattern, bytes) else text


def _filled(text: str, length: int) -> str:
    return (text or "a") * (length // len(text or "a") + 1)


def _repeats(items: Any, prefix: str, depth: int) -> Iterator[tuple[str, str, str]]:
    """(what leads there, one round of the repeat, with what follows) of each repeat."""
    for number, (op, value) in enumerate(items):
        name = str(op)
        if name in ("MAX_REPEAT", "MIN_REPEAT", "POSSESSIVE_REPEAT"):
            atom = _example(value[2])
            yield prefix, atom, atom + _example(items[number + 1 : number + 3])
            if depth < 6:
                yield from _repeats(value[2], prefix, depth + 1)
        elif name == "SUBPATTERN" and depth < 6:
            yield from _repeats(value[3], prefix, depth + 1)
        elif name == "BRANCH" and depth < 6:
            for branch in value[1]:
                yield from _repeats(branch, prefix, depth + 1)
        prefix += _example(items[number : number + 1])


def _example(items: Any) -> str:
    """A short text that it matches, more or less."""
    out = ""
    for op, value in items:
        name = str(op)
        if name == "LITERAL":
            out += chr(value)
        elif name in ("NOT_LITERAL", "ANY", "ANY_ALL"):
            out += "a" if value != ord("a") else "b"
        elif name == "IN":
            out += _member(value)
        elif name.endswith("REPEAT"):
            out += _example(value[2]) * min(max(value[0], 1), 3)
        elif name == "SUBPATTERN":
            out += _example(value[3])
        elif name == "BRANCH":
            out += _example(value[1][0])
    return out


def _member(members: Any) -> str:
    for char in "a1 .-_/:=,\"'xX\t":
        if re.match(f"[{''.join(_class(m) for m in members)}]", char):
            return char
    return "a"


def _class(member: Any) -> str:
    name, value = str(member[0]), member[1]
    if name == "NEGATE":
        return "^"
    if name == "LITERAL":
        return re.escape(chr(value))
    if name == "RANGE":
        return f"{re.escape(chr(value[0]))}-{re.escape(chr(value[1]))}"
    kind = str(value).rsplit("_", 1)[-1][0].lower()
    return "\\" + (kind.upper() if "NOT" in str(value) else kind)


def seconds(do: Any, *args: Any) -> float:
    """Of this thread's own time, the best of three where the first was too slow."""
    best = float("inf")
    for _ in range(3):
        began = time.thread_time()
        do(*args)
        best = min(best, time.thread_time() - began)
        if best < SECONDS:
            break
    return best


def test_what_stays_with_re_is_fast_on_adversarial_text() -> None:
    slow = []
    for where, pattern, flags, anchored in patterns():
        if not is_linear(pattern, flags, anchored=anchored):
            continue
        compiled = re.compile(pattern, flags)
        for text in pumped(pattern, flags):
            took = seconds(compiled.match if anchored else compiled.search, text)
            if took > SECONDS:
                slow.append(f"{where}: {pattern!r}: {took:.2f} s on {text[:60]!r}")
    assert not slow, "\n".join(slow)


HARMFUL = (
    r"\s*\[repeated (\d+)x across cluster\]\s*$",
    r"(?:[A-Za-z]+\.)+Error: (.*)",
    r"\w+: \w+ failed",
    r"(a+)+$",
)


@pytest.mark.parametrize("pattern", HARMFUL)
def test_the_pumps_find_what_the_rule_does_not_prove(pattern: str) -> None:
    assert not is_linear(pattern)
    compiled = re.compile(pattern)
    few, many = 22, 3000
    if pattern == "(a+)+$":  # exponential: a few characters are enough
        assert _took(compiled.search, "a" * few + "\x00") > 0.05
        return
    # A disturbed machine makes one of them slow, not all.
    short = min(
        max(_took(compiled.search, text) for text in pumped(pattern, 0, many // 4))
        for _ in range(3)
    )
    long = max(_took(compiled.search, text) for text in pumped(pattern, 0, many))
    assert long > 7 * short, "grows with the square"
    assert max(_took(regex.compile(pattern).search, text) for text in pumped(pattern, 0)) < 0.25


def _took(do: Any, text: str) -> float:
    began = time.thread_time()
    do(text)
    return time.thread_time() - began


LOOKALIKES = (
    (r"(?P<k>\w+)=(?P<v>\S*)(?:\s|$)", "größe=3 训练=a\u00a0b x=1\n"),
    (r".*(?P<last>\d+)$", "ab 12\n"),
    (r"[^\W\d_]+Error\b", "GrößeError: 1"),
    (r"(?i)a.*b|C+d", "xxCCCd A..b"),
    (r"(?m)^.*x$", "ab\ncx\nd"),
    (r"(?s)a.*b", "a\n\nb"),
    (r"x*", "axxb"),
    (r"[]a-]+.*\]", "-]a]]"),
    (r"(a)|b.*", "bb"),
    (r"\s+\S.*\u2026", "\u00e9  x \u2026!"),
)


@pytest.mark.parametrize(("pattern", "text"), LOOKALIKES)
def test_re2_means_the_same(pattern: str, text: str) -> None:
    theirs, ours = re.compile(pattern), regex.LinearPattern(pattern, 0)

    def told(match: Any) -> Any:
        if match is None:
            return None
        groups = range(theirs.groups + 1)
        return match.groups(), match.groupdict(), [match.span(group) for group in groups]

    stripped = text.rstrip("\n")
    for method in ("search", "match", "fullmatch"):
        assert told(getattr(ours, method)(stripped)) == told(getattr(theirs, method)(stripped))
    assert bool(ours.search(text)) == bool(theirs.search(text))
    assert [told(m) for m in ours.finditer(stripped)] == [
        told(m) for m in theirs.finditer(stripped)
    ]
    assert ours.findall(stripped) == theirs.findall(stripped)
    assert ours.sub(r"<\g<0>>" if "<0>" else "", stripped) == theirs.sub(r"<\g<0>>", stripped)
    assert ours.split(stripped) == theirs.split(stripped)


def test_lone_surrogates_are_text_too() -> None:
    found = regex.LinearPattern(r"a(.*)b", 0).search("\udcffa\udc80b")
    assert (found[1], found.span()) == ("\udc80", (1, 4))


def test_bytes() -> None:
    found = regex.LinearPattern(rb"\xff.*(\d+)$", 0).search(b"\xe9\xff a17")
    assert found[0] == b"\xff a17"


def test_without_re2_the_front_of_a_text_is_still_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "re2", None)
    spec = importlib.util.find_spec("ray_sentinel.regex")
    assert spec is not None
    assert spec.loader is not None
    without = importlib.util.module_from_spec(spec)  # its own copy: RE2 is looked for once
    spec.loader.exec_module(without)
    pattern = without.LinearPattern(r"(?:resum\w+|restor\w+).{0,120}?step (\d+)\b", 0)
    assert pattern.search("resumed from step 17")[1] == "17"
    assert pattern.search("x" * regex.BOUNDED + "resumed from step 17") is None
    assert _took(pattern.search, "resum" * 10_000) < 1
    assert pattern.sub("x", "resumed from step 1, and on") == "x, and on"


@pytest.mark.parametrize("text", [r"(\w+) .*\1", r"(?<!no ).*error", r"a(?=.*b)"])
def test_a_users_expression_that_cannot_be_linear_is_refused(text: str) -> None:
    entry = {"id": "mine", "class": "config", "match": ["error"], "pattern": [text]}
    signatures, _ = parse_entries({"signature": [entry]}, "mine.toml")
    with pytest.raises(ConfigError) as caught:
        compile_rule(signatures[0], "mine.toml")
    for part in ("mine.toml", "mine", "pattern", "linear time", "without lookaround"):
        assert part in str(caught.value)


def test_a_training_process_does_not_load_re2() -> None:
    code = (
        "import ray_sentinel.actors.deployment.deployer as deployer\n"
        "deployer.Deployer.start = lambda self: None\n"
        "import sys, ray_sentinel\n"
        "sentinel = ray_sentinel.attach(job='light', rank=0, world_size=1)\n"
        "sentinel.step(1)\n"
        "sentinel.detach()\n"
        "print('re2' in sys.modules)"
    )
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert ended.stdout.strip().endswith("False"), ended.stderr
