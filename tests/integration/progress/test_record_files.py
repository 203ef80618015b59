"""Records under real conditions: a writer that never pauses, shared memory that is full."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from ray_sentinel.progress import record
from ray_sentinel.progress.identity import RankIdentity
from ray_sentinel.progress.rank.writer import ProgressWriter
from ray_sentinel.progress.reader import RecordReader
from tests.support.ranks import DEADLINE
from tests.support.small_disk import small_disk as mounted

pytestmark = pytest.mark.integration

ROOT = Path(__file__).resolve().parents[3]

BUSY_WRITER = """
import sys
from pathlib import Path
from ray_sentinel.progress.identity import RankIdentity
from ray_sentinel.progress.rank.writer import ProgressWriter

writer = ProgressWriter.open(RankIdentity(job="busy", rank=0), [Path(sys.argv[1])])
print(writer.path, flush=True)
n = 0
while True:
    n += 1
    writer.step(n, half=n / 2)
    if n % 70 == 0:
        with writer.phase(f"phase-{n}" * (n % 4 + 1)):
            pass
"""


@pytest.fixture
def busy(tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen(
        [sys.executable, "-c", BUSY_WRITER, str(tmp_path)],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    assert process.stdout is not None
    process.stdout.readline()
    yield process
    process.kill()
    process.wait()
    process.stdout.close()


def test_nothing_torn_is_ever_read_from_a_writer_that_never_pauses(busy, tmp_path):
    reader = RecordReader([tmp_path])
    last = looks = 0
    seen: set[str] = set()
    deadline = time.monotonic() + DEADLINE
    while looks < 3000 or last < 1000 or len(seen) < 10:
        assert time.monotonic() < deadline, (looks, last, seen)
        looks += 1
        (view,) = reader.scan()
        progress = view.progress
        if progress.step is not None:
            assert progress.step == progress.steps_recorded >= last
            last = progress.step
        if view.note is not None:
            number = view.note.name.removeprefix("phase-").split("phase-")[0]
            assert number in ("", "train") or int(number) % 70 == 0
            seen.add(view.note.name)
        assert set(progress.scalars) <= {"half"}
    assert reader.problems == []
    reader.close()


def test_whatever_instant_the_writer_is_stopped_in_it_can_be_read(busy, tmp_path):
    reader = RecordReader([tmp_path])
    deadline = time.monotonic() + DEADLINE
    while (reader.scan()[0].progress.step or 0) < 100:
        assert time.monotonic() < deadline
    for _ in range(200):
        busy.send_signal(signal.SIGSTOP)
        while Path(f"/proc/{busy.pid}/stat").read_text().rsplit(") ", 1)[1][0] != "T":
            assert time.monotonic() < deadline
        (view,) = reader.scan()
        assert view.progress.step == view.progress.steps_recorded
        assert view.progress.phase.startswith(("phase-", "train"))
        assert len(view.progress.recent_step_seconds) >= 30
        busy.send_signal(signal.SIGCONT)
        time.sleep(0.0005)
    reader.close()


@pytest.fixture
def small_tmpfs(tmp_path: Path) -> Iterator[Path]:
    """A shared memory of 16 KiB."""
    with mounted(tmp_path / "small", "16k", mode="700") as folder:
        yield folder


def test_full_shared_memory_is_said_and_the_next_folder_taken(small_tmpfs, tmp_path, caplog):
    (small_tmpfs / "ballast").write_bytes(bytes(12 << 10))
    spare = tmp_path / "spare"
    writer = ProgressWriter.open(RankIdentity(job="j", rank=0), [small_tmpfs, spare])
    assert writer.path is not None
    assert writer.path.parent == spare
    assert "full" in caplog.text
    assert [path.name for path in small_tmpfs.iterdir()] == ["ballast"]
    writer.step(1)
    writer.close()


def test_shared_memory_that_fills_up_later_does_not_hurt_the_writer(small_tmpfs):
    writer = ProgressWriter.open(RankIdentity(job="j", rank=0), [small_tmpfs])
    assert writer.attached
    with pytest.raises(OSError, match=os.strerror(errno.ENOSPC)):
        (small_tmpfs / "ballast").write_bytes(bytes(64 << 10))
    # A sparse file would end this process by SIGBUS here.
    for n in range(2 * record.STEPS):
        writer.step(n, loss=1.0)
    with writer.phase("x"):
        writer.last_words("exception", "x")
    writer.identify(RankIdentity(job="other", rank=1))
    reader = RecordReader([small_tmpfs])
    (view,) = reader.scan()
    reader.close()
    assert view.progress.step == 2 * record.STEPS - 1
    writer.close()
