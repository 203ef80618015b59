"""The line that says what ended a process."""

from __future__ import annotations

import pytest

from ray_sentinel.evidence.last_lines import MOST_TELLING, telling_line

TRACEBACK = """Traceback (most recent call last):
  File "train.py", line 3, in <module>
    loss.backward()
{0}"""
CHAIN = (
    TRACEBACK.format("KeyError: 'a'")
    + "\n\nDuring handling of the above exception, another exception occurred:\n\n"
    + TRACEBACK.format("RuntimeError: no weights for 'a'")
)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (TRACEBACK.format("ValueError: no such batch"), "ValueError: no such batch"),
        (CHAIN, "RuntimeError: no weights for 'a'"),
        (
            "[rank3]: " + TRACEBACK.format("ValueError: x").replace("\n", "\n[rank3]: "),
            "ValueError: x",
        ),
        (
            TRACEBACK.format("torch.OutOfMemoryError: CUDA out of memory. Tried")
            + "\nterminate called without an active exception\nAborted (core dumped)",
            "torch.OutOfMemoryError: CUDA out of memory. Tried",
        ),
        (
            "terminate called after throwing an instance of 'c10::Error'\n"
            "  what():  CUDA error: an illegal memory access was encountered\nAborted",
            "what(): CUDA error: an illegal memory access was encountered",
        ),
        ("Fatal Python error: Segmentation fault\n\nThread 0x1 (most recent call first):",
         "Fatal Python error: Segmentation fault"),
        ("10:00:02 ERROR x: bad", ""),
        ("2026-11-01 10:00:02 ERROR ValueError: b", "2026-11-01 10:00:02 ERROR ValueError: b"),
        ("step 3 loss 2.1\nsaved the checkpoint", ""),
        ("", ""),
    ],
)  # fmt: skip
def test_the_telling_line(text: str, said: str) -> None:
    assert telling_line(["step 1", "step 2", *text.split("\n")]) == said


def test_a_crash_long_after_a_traceback_is_another_matter() -> None:
    lines = [*TRACEBACK.format("ValueError: got over").split("\n"), *["step"] * 100, "Bus error"]
    assert telling_line(lines) == "Bus error"


def test_it_is_bounded() -> None:
    assert len(telling_line([f"ValueError: {'x' * 100_000}"])) == MOST_TELLING
