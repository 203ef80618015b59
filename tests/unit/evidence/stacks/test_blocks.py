"""In which loops and branches of a function a line stands."""

from __future__ import annotations

import pytest

from ray_sentinel.evidence.stacks.frames.blocks import PythonSource

TEXT = """
def train(rank):
    warm_up()
    for step in range(10):
        with torch.no_grad():
            forward(
                step,
            )
        while waiting():
            poll()
        else:
            settle()
    if rank == 0:
        save()
    else:
        try:
            wait()
        except OSError:
            retry()
        finally:
            close()
    total = sum(
        cost(item)
        for item in items
    )
    match rank:
        case 0:
            lead()
        case _:
            follow()
    barrier()


class Trainer:
    async def fit(self):
        async for batch in self.data:
            def inner():
                collect()
            inner()
        if last: finish()


for epoch in range(3):
    train(epoch)
"""
LINES = TEXT.splitlines()


def line_of(words: str) -> int:
    return next(n for n, line in enumerate(LINES, 1) if words in line)


@pytest.mark.parametrize(
    ("function", "words", "blocks"),
    [
        ("train", "warm_up()", ()),
        ("train", "for step", ("loop {} body",)),
        ("train", "                step,", ("loop {for step} body",)),
        ("train", "poll()", ("loop {for step} body", "loop {while} body")),
        ("train", "settle()", ("loop {for step} body", "choice {while} orelse")),
        ("train", "if rank == 0", ()),
        ("train", "save()", ("choice {if rank} body",)),
        ("train", " wait()", ("choice {if rank} orelse", "try {try} body")),
        ("train", "retry()", ("choice {if rank} orelse", "try {try} handlers0")),
        ("train", "close()", ("choice {if rank} orelse", "try {try} finalbody")),
        ("train", "cost(item)", ("loop {total} body",)),
        ("train", "lead()", ("choice {match} case0",)),
        ("train", "follow()", ("choice {match} case1",)),
        ("train", "barrier()", ()),
        ("Trainer.fit", "            inner()", ("loop {async for} body",)),
        ("Trainer.fit.<locals>.inner", "collect()", ()),
        ("fit", "if last: finish()", ("choice {if last} body",)),
        ("<module>", "train(epoch)", ("loop {for epoch} body",)),
    ],
)
def test_what_is_around_a_line(function: str, words: str, blocks: tuple[str, ...]) -> None:
    line = line_of(words)
    expected = []
    for block in blocks:
        kind, _, rest = block.partition(" {")
        key, _, branch = rest.partition("} ")
        expected.append(f"{kind} {line_of(key) if key else line} {branch}")
    found = PythonSource(TEXT).blocks(function, line)
    assert found == tuple(expected)


@pytest.mark.parametrize(
    ("function", "line"), [("train", 4_000), ("nobody", 3), ("<lambda>", 3), ("<listcomp>", 23)]
)
def test_a_place_that_is_not_in_the_text_is_not_known(function: str, line: int) -> None:
    assert PythonSource(TEXT).blocks(function, line) is None


@pytest.mark.parametrize(
    "text", ["def f(:\n", "x = '\0'", "(" * 5_000, b"\xff\xfe\x00", "print 'two'"]
)
def test_what_is_no_python_is_refused(text: str | bytes) -> None:
    with pytest.raises(ValueError, match="no Python that can be read"):
        PythonSource(text)
