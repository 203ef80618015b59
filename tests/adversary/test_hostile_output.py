"""``ray-sentinel run`` beside a command whose output was made to be hard to read."""

from __future__ import annotations

import lzma
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.support.living import alive, descendants
from tests.support.supervised_run import Run, run_in, until

pytestmark = pytest.mark.integration

MEGABYTE = 1 << 20
WRITES = """
import os, sys, time
out, attempt = sys.stdout.buffer, int(os.environ["RAY_SENTINEL_ATTEMPT"])
def resumed():
    for _ in range(500):
        out.write(b"checkpoint " + b"resum" * 1600 + b"\\n")
def one_line():
    for _ in range(200):
        out.write(b"resume checkpoint error " * 43690)
def binary():
    for _ in range(4):
        out.write(os.urandom(1 << 20))
def no_utf8():
    for _ in range(400_000):
        out.write(b"Error: \\xff\\xfe\\xc3( checkpoint \\xed\\xa0\\x80 loss=\\xf0( step \\x80\\n")
def deep():
    for _ in range(8):
        out.write(b'{"level":"error","msg":' + b'{"a":[' * 80_000 + b"\\n")
def returned():
    for number in range(400_000):
        out.write(b"\\rstep %d loss=1.0" % number)
kinds = [resumed, one_line, binary, no_utf8, deep, returned]
if attempt == len(kinds):
    time.sleep(300)
kinds[attempt]()
out.flush()
sys.exit(3)
"""
KINDS = 6
READS = 1.0
"""Seconds for the reading process, so that what is slow to read is met by its deadline."""
LIMITED = """
import functools, sys
from ray_sentinel import supervised_run
from ray_sentinel.cli.main import main
supervised_run.READ_SECONDS = {seconds}
supervised_run.triage_in_process = functools.partial(
    supervised_run.triage_in_process, memory={memory}
)
sys.exit(main(sys.argv[1:]))
"""
RUN = ["run", "--page", "", "--retry-delay", "0.1", "--job", "job", "--max-delay", "0.1"]


class Peaks:
    """The most memory (bytes) that a process and each of its descendants ever had, by name."""

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self.of: dict[str, int] = {}

    def look(self) -> None:
        for pid in (self._pid, *descendants(self._pid)):
            try:
                status = Path(f"/proc/{pid}/status").read_text()
            except OSError:
                continue
            if "VmHWM:" not in status:
                continue  # it is ending
            name = name_of(pid) if pid != self._pid else "supervisor"
            peak = int(status.partition("VmHWM:")[2].split()[0]) << 10
            self.of[name] = max(peak, self.of.get(name, 0))


def name_of(pid: int) -> str:
    try:
        line = Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return ""
    names = {
        b"ray_sentinel.logs.triage_process": "reader",
        b"ray_sentinel.supervise.attempt.keeper": "keeper",
    }
    return next((name for word, name in names.items() if word in line), "command")


@pytest.fixture
def run(tmp_path: Path) -> Iterator[Run]:
    with run_in(tmp_path) as made:
        yield made


Start = Callable[..., "subprocess.Popen[bytes]"]


@pytest.fixture
def start(run: Run, tmp_path: Path) -> Start:
    """Starts a supervised run whose reader has so many seconds, and so much memory."""

    def started(script: str, seconds: float, memory: int = 2 << 30) -> subprocess.Popen[bytes]:
        limits = LIMITED.format(seconds=seconds, memory=memory)
        with (tmp_path / "said").open("wb") as said:
            run.started.append(
                subprocess.Popen(
                    [sys.executable, "-c", limits, *RUN, "--", sys.executable, "-c", script],
                    env={**os.environ, "RAY_SENTINEL_LOG_DIR": str(run.root)},
                    stdout=subprocess.DEVNULL,
                    stderr=said,
                )
            )
        return run.started[-1]

    return started


def ended(run: Run, started: subprocess.Popen[bytes]) -> str:
    """SIGTERM ends it at once; what it said."""
    begun = time.monotonic()
    started.terminate()
    assert started.wait(timeout=30) == 128 + signal.SIGTERM
    assert time.monotonic() - begun < 10
    return (run.root.parent / "said").read_text()


@pytest.mark.timeout(300)
def test_it_is_restarted_in_time_and_its_memory_is_bounded(run: Run, start: Start) -> None:
    started = start(WRITES, READS)
    peaks = Peaks(started.pid)
    failed: dict[int, float] = {}
    waited: dict[int, float] = {}

    def last_attempt() -> bool:
        peaks.look()
        now = time.monotonic()
        for attempt in range(KINDS):
            if run.state(attempt).get("ended_at"):
                failed.setdefault(attempt, now)
            if run.state(attempt + 1).get("child") and attempt in failed:
                waited.setdefault(attempt, now - failed[attempt])
        return len(waited) == KINDS

    until(last_attempt, 200.0)
    peaks.look()
    said = ended(run, started)
    assert "Traceback" not in said
    assert said.count("it ended with status 3") == KINDS, said
    assert "it was not read to its end within 1 s" in said, "at least one was met by the deadline"
    assert max(waited.values()) < READS + 15, waited
    assert peaks.of["supervisor"] < 150 * MEGABYTE, peaks.of
    assert peaks.of["keeper"] < 80 * MEGABYTE, peaks.of
    assert peaks.of.get("reader", 0) < 300 * MEGABYTE, peaks.of


def test_sigterm_while_it_is_read(run: Run, start: Start, tmp_path: Path) -> None:
    # A line of an error costs most: this takes minutes to read.
    script = "print('Error: CUDA out of memory in NCCL\\n' * 1_000_000); raise SystemExit(3)"
    started = start(script, 300.0)

    def reader() -> int | None:
        return next((pid for pid in descendants(started.pid) if name_of(pid) == "reader"), None)

    reads = until(reader)
    assert not run.state(1), "it waits for what is read"
    ended(run, started)
    until(lambda: not alive(reads))


def test_a_log_that_takes_too_much_memory_is_said_and_restarted(
    run: Run, start: Start, tmp_path: Path
) -> None:
    window = [{"id": lzma.FILTER_LZMA2, "preset": 0, "dict_size": 64 << 20}]
    packed = tmp_path / "packed"
    packed.write_bytes(lzma.compress(b"step 1 loss 2\n" * 1_000_000, filters=window))
    script = (
        "import os, sys, time\n"
        "if os.environ['RAY_SENTINEL_ATTEMPT'] == '1':\n"
        "    time.sleep(300)\n"
        f"sys.stdout.buffer.write(open({str(packed)!r}, 'rb').read())\n"
        "sys.exit(3)\n"
    )
    started = start(script, 60.0, memory=48 << 20)
    run.until_it_runs(1)
    said = ended(run, started)
    assert "reading it takes more than 48 MiB of memory" in said
    assert "Traceback" not in said
