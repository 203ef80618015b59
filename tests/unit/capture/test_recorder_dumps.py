"""Flight recorders by the watchdog's pipe and from disk."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from ray_sentinel.capture import recorder_dumps
from ray_sentinel.capture.recorder_dumps import (
    FRESH,
    FoundDump,
    NoDumpError,
    Places,
    Recorders,
    by_pipe,
    on_disk,
    places,
    read_dump,
    read_environ,
)
from ray_sentinel.clock import FakeClock, WallHistory
from ray_sentinel.model.identity import ProcessId, Rank, RankId
from ray_sentinel.progress.proc.proc_stat import TICK, parse_stat
from tests.support.waiting import eventually


class Watchdog:
    """Stands in for PyTorch's: reads its pipe as time passes, and writes its file in two parts."""

    def __init__(self, where: Places) -> None:
        assert where.pipe is not None
        os.mkfifo(where.pipe)
        self.handle = os.open(where.pipe, os.O_RDONLY | os.O_NONBLOCK)
        self.file = where.files[0]
        self.time = 0.0
        self.parts: list[bytes] = []
        self.asked = b""

    def sleep(self, seconds: float) -> None:
        self.time += seconds
        try:
            said = os.read(self.handle, 128)
        except BlockingIOError:
            said = b""
        if said:
            self.asked += said
            self.parts = [b"half", b"half and half"]
        if self.parts:
            self.file.write_bytes(self.parts.pop(0))


def rank_of(process: ProcessId) -> Rank:
    return Rank(id=RankId(job="j", attempt=0, rank=7), process=process, node="n")


def test_where_a_rank_writes_comes_from_its_environment() -> None:
    found = places(3, {"TORCH_NCCL_DEBUG_INFO_TEMP_FILE": "/x/_dump_", "HOME": "/home/u"})
    assert found == Places(files=(Path("/x/_dump_3"),))
    both = {"TORCH_FR_DUMP_TEMP_FILE": "/y/fr_", "TORCH_NCCL_DEBUG_INFO_TEMP_FILE": "/x/_dump_"}
    assert places(0, both).files == (Path("/y/fr_0"),)
    plain = places(1, {"HOME": "/home/u", "TORCH_NCCL_DEBUG_INFO_PIPE_FILE": "/tmp/p_"})
    assert Path("/home/u/.cache/torch/comm_lib_trace_rank_1") in plain.files
    assert Path("/tmp/nccl_trace_rank_1") in plain.files
    assert plain.pipe == Path("/tmp/p_1.pipe")


def test_the_watchdog_is_asked_and_its_whole_file_is_read(tmp_path: Path) -> None:
    where = Places(files=(tmp_path / "fr_0",), pipe=tmp_path / "p_0.pipe")
    (tmp_path / "fr_0").write_bytes(b"an older dump")
    os.utime(tmp_path / "fr_0", (1.0, 1.0))
    watchdog = Watchdog(where)
    found = by_pipe(where, 5.0, now=lambda: watchdog.time, sleep=watchdog.sleep)
    assert read_dump(found) == b"half and half"
    assert watchdog.asked == b"1\n"


def test_a_pipe_without_a_reader_or_without_an_answer_is_said(tmp_path: Path) -> None:
    where = Places(files=(tmp_path / "fr_0",), pipe=tmp_path / "p_0.pipe")
    with pytest.raises(NoDumpError, match="cannot be opened"):
        by_pipe(where, 1.0)
    watchdog = Watchdog(where)

    def later(seconds: float) -> None:
        watchdog.time += seconds

    with pytest.raises(NoDumpError, match="wrote nothing"):
        by_pipe(where, 1.0, now=lambda: watchdog.time, sleep=later)
    with pytest.raises(NoDumpError, match="is not set"):
        by_pipe(Places(files=()), 1.0)
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(NoDumpError, match="is no pipe"):
        by_pipe(Places(files=(), pipe=tmp_path / "file"), 1.0)
    assert (tmp_path / "file").read_bytes() == b""


def test_an_older_run_s_file_is_not_taken(tmp_path: Path) -> None:
    where = Places(files=(tmp_path / "fr_0",))
    assert on_disk(where) is None
    (tmp_path / "fr_0").write_bytes(b"dump")
    os.utime(tmp_path / "fr_0", (100.0, 100.0))
    assert on_disk(where, lambda _, found: found.st_mtime > 50.0) == FoundDump(
        tmp_path / "fr_0", where
    )
    assert on_disk(where, lambda _, found: found.st_mtime > 150.0) is None


def test_an_answer_of_long_ago_is_no_answer(tmp_path: Path) -> None:
    """The pipe was answered once before, in a trouble that the job got over."""
    where = Places(files=(tmp_path / "fr_7",), pipe=tmp_path / "p_7.pipe")
    (tmp_path / "fr_7").write_bytes(b"of long ago")
    long_ago = time.time() - 10 * FRESH
    os.utime(tmp_path / "fr_7", (long_ago, long_ago))
    watchdog = Watchdog(where)
    rank = rank_of(ProcessId(host="h", pid=1, start=1))
    fake_process(tmp_path / "proc", 1, tmp_path / "fr_", pipe=tmp_path / "p_", begun=0.0)
    recorders = Recorders(sleep=watchdog.sleep, proc=str(tmp_path / "proc"))
    assert read_dump(recorders.find(rank, 30.0)) == b"half and half"
    os.utime(tmp_path / "fr_7", (long_ago, long_ago))
    os.close(watchdog.handle)
    assert read_dump(recorders.find(rank, 0.2)) == b"half and half", (
        "who does not answer has left a file"
    )


class SetClock:
    """A rank that was started 100 s after its agent, whose clock is set at 200 s; now it is 300 s
    and more. Whoever writes takes the time from that clock."""

    def __init__(self, folder: Path, step: float) -> None:
        self.clock = FakeClock()
        self.where = Places(files=(folder / "fr_7",), pipe=folder / "p_7.pipe")
        self.watchdog = Watchdog(self.where)
        fake_process(folder / "proc", 1, folder / "fr_", pipe=folder / "p_", begun=100.0)
        self.recorders = Recorders(
            sleep=self.watchdog.sleep, wall=WallHistory(self.clock), proc=str(folder / "proc")
        )
        self._step = step

    def writes(self, at: float) -> None:
        """The dump, at so many seconds after the agent's start."""
        self.goes_on(at)
        self.where.files[0].write_bytes(b"there")
        os.utime(self.where.files[0], (self.clock.now(), self.clock.now()))

    def goes_on(self, until: float) -> None:
        for moment in (199.0, 200.0, until):
            if moment == 200.0 <= until and self.clock.monotonic() < 200.0:
                self.recorders.wall.poll()
                self.clock.advance(200.0 - self.clock.monotonic())
                self.clock.step(self._step)
                self.recorders.wall.poll()
            self.clock.advance(max(0.0, min(moment, until) - self.clock.monotonic()))

    def found(self) -> bytes:
        self.watchdog.time = 0.0
        rank = rank_of(ProcessId(host="h", pid=1, start=1))
        return read_dump(self.recorders.find(rank, 0.3))

    def never_answers(self) -> None:
        os.close(self.watchdog.handle)


@pytest.mark.parametrize("step", [-86_400.0, -3600.0, 0.0, 3600.0, 86_400.0])
def test_a_clock_that_is_set_makes_no_dump_newer_or_older(tmp_path: Path, step: float) -> None:
    dump = SetClock(tmp_path, step)
    dump.never_answers()
    for at, own in ((50.0, False), (150.0, True), (250.0, True)):
        dump.writes(at)
        if own:
            assert dump.found() == b"there"
    dump.goes_on(100_000.0)
    assert dump.found() == b"there", "all that there is"


@pytest.mark.parametrize("step", [-86_400.0, -3600.0, 0.0, 3600.0, 86_400.0])
@pytest.mark.parametrize("until", [300.0, 3650.0, 3900.0, 100_000.0])
def test_another_run_s_dump_stays_another_run_s(tmp_path: Path, step: float, until: float) -> None:
    dump = SetClock(tmp_path, step)
    dump.never_answers()
    dump.writes(50.0)
    dump.goes_on(until)
    with pytest.raises(NoDumpError):
        dump.found()


def test_a_dump_of_long_ago_is_not_fresh_because_the_clock_was_set_back(tmp_path: Path) -> None:
    dump = SetClock(tmp_path, -3600.0)
    dump.writes(150.0)
    dump.goes_on(150.0 + 3600.0 + 5.0)
    assert dump.found() == b"half and half", "it is asked again"


def test_a_rank_s_environment_is_read_while_it_lives() -> None:
    assert read_environ(os.getpid())
    with pytest.raises(FileNotFoundError):
        read_environ(2**22 + 1)
    gone = rank_of(ProcessId(host="h", pid=2**22 + 1, start=1))
    with pytest.raises(NoDumpError, match="environment cannot be read"):
        Recorders().find(gone, 0.1)


def fake_process(
    proc: Path, pid: int, dump: Path, *, pipe: Path | None = None, begun: float = 1.0
) -> None:
    """What is read of a process in a tree like /proc: started ``begun`` seconds after the boot."""
    (proc / str(pid)).mkdir(parents=True)
    name, _, fields = Path("/proc/self/stat").read_bytes().rpartition(b")")
    told = fields.split()
    told[19] = str(round(begun / TICK)).encode()  # starttime, the 22nd of all
    (proc / str(pid) / "stat").write_bytes(name + b") " + b" ".join(told))
    environ = f"TORCH_FR_DUMP_TEMP_FILE={dump}\0"
    if pipe is not None:
        environ += f"TORCH_NCCL_DEBUG_INFO_PIPE_FILE={pipe}\0"
    (proc / str(pid) / "environ").write_bytes(environ.encode())
    ids = f"Uid:{4 * f' {os.geteuid()}'}\nGid: 0 0 0 0\n"
    (proc / str(pid) / "status").write_text(ids)


def test_a_rank_whose_environment_cannot_be_read_holds_nobody_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As where a thread of it hangs in the kernel with the process's memory locked."""
    monkeypatch.setattr(recorder_dumps, "LOOK_SECONDS", 0.3)
    proc = tmp_path / "proc"
    for pid in (7, 8):
        fake_process(proc, pid, tmp_path / f"of_{pid}_")
    hanging, well = (rank_of(ProcessId(host="h", pid=pid, start=1)) for pid in (7, 8))
    fifo = proc / "7" / "environ"
    fifo.unlink()
    os.mkfifo(fifo)
    (tmp_path / "of_8_7").write_bytes(b"a dump")
    recorders = Recorders(proc=str(proc))
    begun = time.monotonic()
    assert recorders.note([hanging, well]) == {(7, 1): "did not return within 0.3 s"}
    assert read_dump(recorders.find(well, 0.1)) == b"a dump"
    with pytest.raises(NoDumpError, match="cannot be read: an earlier read has not returned"):
        recorders.find(hanging, 0.1)
    assert time.monotonic() - begun < 20
    handle = os.open(fifo, os.O_WRONLY)
    fifo.unlink()
    fifo.write_bytes((proc / "8" / "environ").read_bytes())
    assert "has not returned" in recorders.note([hanging])[7, 1]
    os.close(handle)
    eventually(
        lambda: recorders.note([hanging]) == {}, "it is looked at again once the read is back"
    )


def test_of_two_pipes_in_the_environment_the_first_is_the_rank_s(tmp_path: Path) -> None:
    pipe = "TORCH_NCCL_DEBUG_INFO_PIPE_FILE"
    (tmp_path / "7").mkdir()
    (tmp_path / "7/environ").write_bytes(f"{pipe}=/a\0{pipe}=/b\0".encode())
    assert places(0, read_environ(7, str(tmp_path))).pipe == Path("/a0.pipe")


def test_what_a_watchdog_left_is_found_for_a_rank_that_never_attached(tmp_path: Path) -> None:
    environ = {**os.environ, "TORCH_NCCL_DEBUG_INFO_TEMP_FILE": str(tmp_path / "_dump_")}
    child = subprocess.Popen(
        [sys.executable, "-c", "print(flush=True); input()"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env=environ,
    )
    try:
        assert child.stdout is not None
        child.stdout.readline()
        stat = Path(f"/proc/{child.pid}/stat").read_bytes()
        start = parse_stat(stat).start
        rank = rank_of(ProcessId(host="h", pid=child.pid, start=start))
        recorders = Recorders()
        with pytest.raises(NoDumpError, match="PIPE_FILE"):
            recorders.find(rank, 0.1)
        (tmp_path / "_dump_7").write_bytes(b"left behind")
    finally:
        child.kill()
        child.wait()
    assert read_dump(recorders.find(rank, 0.1)) == b"left behind"
