"""Secrets never leave; what a diagnosis needs stays."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Literal

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ray_sentinel.masking import mask, mask_argv, mask_bytes, mask_record, mask_tail
from tests.support.log_corpus.scenarios import SCENARIOS
from tests.support.planted_secrets import B64, HARMLESS, LINES, PEM, SAMPLES, R

FIXTURES = Path(__file__).parents[2] / "fixtures"
DOCS = Path(__file__).parents[3] / "docs"


@pytest.mark.parametrize(("text", "secret"), SAMPLES)
def test_secrets_are_masked(text: str, secret: str) -> None:
    assert secret in text
    masked = mask(text)
    assert secret not in masked
    assert "***" in masked
    assert mask(masked) == masked


@pytest.mark.parametrize("before", ["[rank0]: ", "(train pid=7, ip=10.0.0.1) ", "E 12:00:00 "])
def test_behind_a_prefix(before: str) -> None:
    for text, secret in SAMPLES:
        assert secret not in mask(f"step 3\n{before}{text}\nstep 4\n"), text


@pytest.mark.parametrize("text", HARMLESS)
def test_what_is_no_secret_stays(text: str) -> None:
    assert mask(text) == text


def real_logs() -> Iterator[tuple[str, str]]:
    for path in sorted(FIXTURES.rglob("*")):
        if path.is_file() and path.stat().st_size < 1 << 20:
            try:
                yield path.name, path.read_text()
            except UnicodeDecodeError:
                continue


def test_logs_and_dumps_of_real_programs_stay() -> None:
    for name, text in real_logs():
        assert mask(text) == text, name


def test_the_documents_stay() -> None:
    for path in sorted(DOCS.rglob("*.md")):
        if path.name not in ("security.md", "page.md"):  # they show what is masked
            assert mask(path.read_text()) == path.read_text(), path.name


@pytest.mark.parametrize("name", sorted(SCENARIOS))
def test_logs_of_whole_jobs_stay(name: str) -> None:
    job = SCENARIOS[name](3)[0]
    text = "\n".join(dict.fromkeys(line.text for line in job.lines[-600:]))
    assert mask(text) == text


def test_key_and_structure_stay() -> None:
    assert mask('{"user": "bob", "password": "x y", "lr": 3}') == (
        '{"user": "bob", "password": "***", "lr": 3}'
    )
    assert mask("redis://:hunter2@10.0.0.1:6379/0") == "redis://:***@10.0.0.1:6379/0"
    assert mask("curl -u bob:hunter2 https://e.com") == "curl -u bob:*** https://e.com"
    assert mask(PEM) == ("-----BEGIN RSA PRIVATE KEY-----***-----END RSA PRIVATE KEY-----")


def test_a_secret_is_masked_wherever_it_stands() -> None:
    assert mask("password=hunter2x9, tried hunter2x9 and hunter2x9!") == (
        "password=***, tried *** and ***!"
    )


def test_a_tail_may_begin_inside_of_a_secret() -> None:
    assert R not in mask_tail(f"{R} refused\nstep 3")
    assert B64[10:] not in mask_tail(B64[10:] + "\n" + LINES)
    for cut in range(0, len(PEM) - 60, 7):
        tail = mask_tail(PEM[cut:] + "\nstep 3\n")
        assert not any(line[-12:] in tail for line in LINES.splitlines()), cut
        assert tail.endswith("step 3\n")
        known = mask_tail(PEM[cut:] + "\nstep 3\n", PEM[:cut])
        assert not any(line[-12:] in known for line in LINES.splitlines()), cut
    text = "x" * 50 + " password='correct horse'\nstep 3"
    for cut in range(60, 75):
        assert "horse" not in mask_tail(text[cut:], text[:cut])


@pytest.mark.parametrize(
    ("argv", "shown"),
    [
        (["t.py", "--token", "a b", "--lr", "3"], ["t.py", "--token", "***", "--lr", "3"]),
        (["t.py", "--password=a b, c"], ["t.py", "--password=***"]),
        (["env", "HF_TOKEN=a b", "python"], ["env", "HF_TOKEN=***", "python"]),
        (["mysql", "-phunter two"], ["mysql", "-p***"]),
        (["sshpass", "-p", "a b", "ssh"], ["sshpass", "-p", "***", "ssh"]),
        (["curl", "-u", "bob:a b"], ["curl", "-u", "bob:***"]),
        (["curl", "-H", "X-Api-Key: a b"], ["curl", "-H", "X-Api-Key: ***"]),
        (["t.py", "hunter2x9", "--token", "hunter2x9"], ["t.py", "***", "--token", "***"]),
        (["t.py", "--max-tokens", "4096", "--pad-token", "<pad>"], None),
        (["python", "-m", "torch.distributed.run", "--nproc-per-node=8", "train.py"], None),
    ],
)
def test_words_of_a_command(argv: list[str], shown: list[str] | None) -> None:
    assert mask_argv(argv) == (argv if shown is None else shown)


class Inner(msgspec.Struct, frozen=True):
    text: str


class Outer(msgspec.Struct, frozen=True):
    inner: tuple[Inner, ...]
    by_name: dict[str, str]
    number: float = 1.0


def test_every_text_of_a_record() -> None:
    record = Outer((Inner("password=hunter2"), Inner("step 3")), {"token": "abc123", "a": "b"})
    masked = mask_record(record)
    assert masked == Outer((Inner("password=***"), Inner("step 3")), {"token": "***", "a": "b"})
    assert mask_record(masked) is masked


class Mixed(msgspec.Struct, frozen=True):
    either: str | int | None
    anything: Any
    kind: Literal["password=hunter2", "else"]
    pairs: tuple[tuple[float, str], ...]
    handler: Callable[[int], str] | None = None
    place: int | None = None
    levels: list[float] = []


def test_text_is_found_wherever_a_record_may_hold_it() -> None:
    secret = "password=hunter2"
    shown: Any = "password=***"
    record = Mixed(secret, [Inner(secret)], "password=hunter2", ((1.0, secret),), None, 3, [0.5])
    masked = mask_record(record)
    assert masked == Mixed(shown, [Inner(shown)], shown, ((1.0, shown),), None, 3, [0.5])
    assert mask_record(masked) is masked


def test_bytes_that_are_no_text_stay() -> None:
    assert mask_bytes(b"\xff password=hunter2 \xfe") == b"\xff password=*** \xfe"
    plain = bytes(range(256))
    assert mask_bytes(plain) is plain


PARTS = [text for text, _ in SAMPLES] + HARMLESS + list("\"'\\\n=: ,&|{}[]()<>\0-%") + ["\u0130"]


@settings(max_examples=60, deadline=None)
@given(st.lists(st.sampled_from(PARTS), max_size=4).map("".join))
def test_whatever_comes_it_ends_and_is_masked_once(text: str) -> None:
    masked = mask(text)
    assert mask(masked) == masked
    mask_tail(text)
    words = text.split("\0")
    assert len(mask_argv(words)) == len(words)


HOSTILE = [
    'password="', '{"password": ', "password=[", "-----BEGIN PRIVATE KEY-----",
    "AAAA\n-----END PRIVATE KEY-----\n", "secret.", "https://a:", "a://@", "password=\\", "eyJ",
    "curl -u ", "mysql -p", "password: |\n", "?token=a", "password for a ", "wandb login key ",
    "[a] ",
    "2025-03-10 12:50:59,309 x 1:2 3,4 password y\n",
    "(a) password: ", "/hooks/", "login('a', ", "input_value=a ",
    "machine a password b ",
    "Cookie: a; ", "password=/a", "password\0", "A1b2C3d4" * 8 + "\n", "password ", "sk-aaaaaaa1 ",
]  # fmt: skip


@pytest.mark.parametrize("piece", HOSTILE)
def test_the_time_is_linear(piece: str) -> None:
    text = piece * (40_000 // len(piece))
    begun = time.process_time()
    mask(text)
    # Of 40 kB, quadratic work would be minutes.
    assert time.process_time() - begun < 4.0
