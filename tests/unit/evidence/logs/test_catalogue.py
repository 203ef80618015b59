"""The catalogue that the package carries: complete, found by its own examples, well formed."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from ray_sentinel.errors import ConfigError
from ray_sentinel.evidence.logs.errors.catalogue import TRIGGERS, Catalogue
from ray_sentinel.evidence.logs.errors.signatures import (
    CLASSES,
    Signature,
    compile_rule,
    parse_entries,
)
from ray_sentinel.evidence.logs.lines.lines import parse_line
from ray_sentinel.evidence.logs.records import LogFile
from ray_sentinel.evidence.logs.scan import Scanner
from ray_sentinel.logs.catalogue import load_catalogue

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

FIXTURES = Path(__file__).parents[3] / "fixtures" / "logs"
MADE_BY_CODE = {"python-exception", "python-wrapper"}


def toml(name: str) -> dict[str, Any]:
    return tomllib.loads((FIXTURES / name).read_text(encoding="utf-8"))


SECTIONS = [
    (document, section)
    for document, table in toml("sections.toml").items()
    for section in table["sections"]
]
EXAMPLES = [(name, line) for name, lines in toml("examples.toml").items() for line in lines]


@pytest.fixture(scope="module")
def catalogue() -> Catalogue:
    return load_catalogue()


def sources(catalogue: Catalogue) -> set[tuple[str, str]]:
    entries = [rule.signature.source for rule in catalogue.rules]
    entries += [advice.source for advice in catalogue.advice]
    entries += [item.mark.source for item in catalogue.marks]
    return {(source.document, source.section) for entry in entries for source in entry}


@pytest.mark.parametrize(("document", "section"), SECTIONS)
def test_every_section_has_an_entry(catalogue: Catalogue, document: str, section: str) -> None:
    assert (document, section) in sources(catalogue)


def test_no_entry_names_a_section_that_is_not_there(catalogue: Catalogue) -> None:
    assert sources(catalogue) <= set(SECTIONS)


@pytest.mark.parametrize(("name", "line"), EXAMPLES)
def test_examples_are_found(catalogue: Catalogue, name: str, line: str) -> None:
    if catalogue.get(name).connections:
        assert catalogue.search_frames([line], connections=True) is catalogue.get(name)
        return
    if catalogue.get(name).frames:
        assert catalogue.search_frames([line]) is catalogue.get(name)
        return
    text = parse_line(line).text
    files = catalogue.get(name).files
    kind = files[0] if files else "log"
    found = catalogue.search(text, kind)
    signature = found.signature if found is not None else catalogue.harmless(text, kind)
    assert signature is not None
    assert signature.id == name
    lower = text.lower().encode()
    assert catalogue.triggers.lines(lower, len(lower), 1)


def test_every_entry_has_an_example(catalogue: Catalogue) -> None:
    assert set(catalogue.by_id) - MADE_BY_CODE == set(toml("examples.toml"))


def test_every_class_of_failure_can_be_found(catalogue: Catalogue) -> None:
    by_analysis = {"soft-success", "running", "startup-stuck", "throughput-degradation"}
    assert {rule.signature.kind for rule in catalogue.rules} | by_analysis >= CLASSES


def test_entries_say_why_and_what_to_do(catalogue: Catalogue) -> None:
    for rule in catalogue.rules:
        signature = rule.signature
        if signature.role in ("cause", "symptom"):
            assert signature.cause, signature.id
            assert signature.remedy, signature.id
        if signature.role == "harmless":
            assert signature.cause, signature.id


def test_few_words_are_looked_for() -> None:
    assert len(TRIGGERS) < 130


def test_every_word_of_an_entry_calls_up_its_line(catalogue: Catalogue) -> None:
    for rule in catalogue.rules:
        signature = rule.signature
        if not (signature.harmless or signature.frames or signature.connections):
            for literal in rule.literals:
                data = literal.encode()
                assert catalogue.triggers.lines(data, len(data), 1), (signature.id, literal)


@pytest.mark.parametrize(
    ("name", "line"),
    [
        ("verbs-transport-failed", "Transport retry count exceeded on mlx5_0:1/IB (synd 0x15)"),
        ("network-port-down", "NET/IB : Got async event : IBV_EVENT_DEVICE_FATAL"),
        ("engine-works", "[2025-09-18 10:08:30 TP0] Prefill batch. #new-seq: 1, #queue-req: 0"),
    ],
)
def test_the_scanner_finds_a_line_that_holds_no_common_word(
    catalogue: Catalogue, name: str, line: str
) -> None:
    assert scanned(catalogue, line, "log") == {name}


@pytest.mark.parametrize(("name", "line"), EXAMPLES)
def test_the_scanner_finds_the_examples(catalogue: Catalogue, name: str, line: str) -> None:
    signature = catalogue.get(name)
    if not (signature.frames or signature.connections):
        found = scanned(catalogue, line, signature.files[0] if signature.files else "log")
        assert name in found, found


def scanned(catalogue: Catalogue, line: str, kind: str) -> set[str]:
    scanner = Scanner(LogFile(label="a.log", kind=kind), 0, catalogue, 2025)
    data = line.encode() + b"\n"
    scanner.feed(data, 0, len(data))
    return set(scanner.result().counts)


def test_a_users_entry_is_found_by_its_own_word() -> None:
    own = Signature(id="own", kind="storage", match=("frobnicator jammed",), remedy=("Unjam it.",))
    catalogue = Catalogue([], own=[("mine.toml", own)])
    found = catalogue.search("E: Frobnicator jammed again")
    assert found is not None
    assert found.signature is own
    assert b"frobnicator jammed" in catalogue.triggers.words


def made(entry: dict[str, Any]) -> None:
    signatures, _ = parse_entries({"signature": [entry]}, "mine.toml")
    compile_rule(signatures[0], "mine.toml")


@pytest.mark.parametrize(
    ("entry", "said"),
    [
        ({"id": "a", "class": "no-such-class", "match": ["abc"]}, "is not one of"),
        ({"id": "a", "class": "storage"}, "match needs"),
        ({"id": "a", "class": "storage", "match": ["ab"]}, "too short"),
        (
            {"id": "a", "class": "storage", "match": ["abc"], "pattern": ["("]},
            "no regular expression",
        ),
        ({"id": "a", "class": "storage", "match": ["abc"], "clas": "x"}, "unknown field"),
        ({"id": "a", "class": "storage", "match": "abc"}, "array"),
        ({"id": "a", "class": "storage", "match": ["abc"], "role": "boss"}, "Invalid enum"),
        ({"id": "", "class": "storage", "match": ["abc"]}, "no id"),
    ],
)
def test_a_bad_entry_is_named(entry: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError, match=r"mine\.toml") as error:
        made(entry)
    assert said in str(error.value)


def test_an_unknown_table_is_named() -> None:
    with pytest.raises(ConfigError, match="signatures"):
        parse_entries({"signatures": []}, "mine.toml")
    with pytest.raises(ConfigError, match="double brackets"):
        parse_entries({"signature": {"id": "a"}}, "mine.toml")
