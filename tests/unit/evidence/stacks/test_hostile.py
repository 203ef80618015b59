"""Output that is cut off, damaged or made up: what can be read is read, nothing raises or hangs."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ray_sentinel.evidence.stacks import classify, parse
from ray_sentinel.evidence.stacks.readers.formats import FORMATS
from ray_sentinel.model.identity import ProcessId
from ray_sentinel.waitgraph.stacks import explain

FIXTURES = Path(__file__).parents[3] / "fixtures" / "stacks"
SAMPLES = sorted(
    path for pattern in ("single/*", "gloo_plain/gdb/*", "*.txt") for path in FIXTURES.glob(pattern)
)
PROCESS = ProcessId("h", 7)


def frames_of(text: str | bytes, hint: str = "") -> int:
    traces = parse(text, PROCESS, hint=hint)
    assert traces
    for trace in traces:
        classify(trace)
    return sum(len(thread.frames) for trace in traces for thread in trace.threads)


@pytest.mark.parametrize("path", SAMPLES, ids=lambda path: path.name)
def test_cut_off_after_every_line(path: Path) -> None:
    lines = path.read_text().splitlines(keepends=True)
    whole = frames_of("".join(lines))
    step = max(1, len(lines) // 120)
    before = 0
    for end in range(0, len(lines), step):
        found = frames_of("".join(lines[:end]), hint=path.name.split("_")[0])
        assert found <= whole
        # More of the text never tells fewer frames, once the format shows.
        assert found >= before or path.suffix == ".json"
        before = found


@pytest.mark.parametrize("path", SAMPLES, ids=lambda path: path.name)
def test_cut_off_in_the_middle_of_a_line(path: Path) -> None:
    data = path.read_bytes()
    for end in range(0, len(data), max(1, len(data) // 60)):
        frames_of(data[:end])


def test_a_cut_off_json_keeps_the_whole_threads() -> None:
    text = (FIXTURES / "single/pyspy_gil_sleep.json").read_text()
    (trace,) = parse(text[: text.rindex('"thread_name"')], ProcessId("h", 0))
    assert [thread.name for thread in trace.threads] == ["ticker"]
    assert "cut off" in trace.error


@pytest.mark.parametrize(
    "value",
    [
        [{"frames": 3}],
        [{"pid": "x", "frames": [1, None, {"name": 5}, {"name": "f", "line": -3}]}],
        [{"pid": 1 << 80, "frames": [{"name": "f", "filename": None, "line": 1.5}]}],
        [[], {"frames": []}],
        [{"frames": [{"name": "f", "filename": "a.py"}], "process_info": 7, "thread_name": {}}],
    ],
)
def test_json_of_the_wrong_kind(value: object) -> None:
    frames_of(json.dumps(value))


def test_json_nested_too_deep() -> None:
    frames_of('[{"frames": ' + "[" * 100_000)


@pytest.mark.parametrize("reader", FORMATS, ids=lambda item: item.name)
@given(data=st.text(max_size=400))
@settings(max_examples=60, deadline=None)
def test_any_text_is_survived_by_every_reader(reader: object, data: str) -> None:
    for trace in reader.parse(data, PROCESS, 0.0):  # type: ignore[attr-defined]
        classify(trace)


@given(data=st.binary(max_size=600))
@settings(max_examples=150, deadline=None)
def test_any_bytes_are_survived(data: bytes) -> None:
    frames_of(data)
    frames_of(data, hint="cudagdb")


_WORDS = st.sampled_from(
    [
        'Thread 7 (idle): "MainThread"', "Process 7: python", "    f (a.py:1)",
        "#0  main () at a.c:1", "Thread 1 (Thread 0x7 (LWP 7)):", "[<0>] futex_wait+0x1/0x2",
        "State: D", "No CUDA kernels.", '  File "a.py", line 1 in f',
        "Current thread 0x7 (most recent call first):", '[{"frames": [', "        Locals:",
        "* 0 - 0 1 Active 0x1 (1,1,1) (1,1,1) k()", "\x1b[31m", "\x00", "(" * 50,
        "#1 <" + "<" * 40, "Thread", "#", "    (", "    )", "wchan: x", "Kernel 0: k on device 1",
    ]
)  # fmt: skip


@given(lines=st.lists(_WORDS, max_size=40))
@settings(max_examples=200, deadline=None)
def test_pieces_of_formats_in_any_order(lines: list[str]) -> None:
    facts = [classify(trace) for trace in parse("\n".join(lines), PROCESS)]
    found = explain([facts])
    assert 0.0 <= found.confidence <= 1.0


@pytest.mark.parametrize(
    "line",
    ["#0 " + "(" * 100_000, "    " + "a (" * 30_000, "    f (" + ":" * 100_000 + ")",
     "Thread 1 (" * 20_000, "#1 " + "<" * 50_000 + ">" * 50_000, " " * 100_000 + "x",
     "Kernel 0: " + "k " * 50_000 + "on device", '  File "' + '"' * 90_000],
    ids=range(8),
)  # fmt: skip
@pytest.mark.timeout(20)
def test_long_lines_take_no_long_time(line: str) -> None:
    for reader in FORMATS:
        reader.looks_like(line)
        reader.parse("\n".join([line] * 20), PROCESS, 0.0)


def test_a_stack_without_end_is_bounded() -> None:
    text = 'Process 7: python\nThread 7 (idle): "MainThread"\n' + "    f (a.py:1)\n" * 50_000
    (trace,) = parse(text, PROCESS)
    assert 100 <= len(trace.threads[0].frames) <= 5_000
