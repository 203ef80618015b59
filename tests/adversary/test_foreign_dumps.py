"""Another user of the machine lays files where a rank's flight recorder is looked for."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from ray_sentinel.capture.recorder_dumps import (
    NoDumpError,
    Places,
    Recorders,
    by_pipe,
    on_disk,
    read_dump,
)
from ray_sentinel.evidence_file import ForeignFileError, open_evidence, uid_of
from ray_sentinel.model.identity import ProcessId, Rank, RankId
from ray_sentinel.progress.rank.own_process import start_ticks
from ray_sentinel.trusted_path import TRUSTED_UIDS_VARIABLE
from tests.support.other_user import NOBODY, as_nobody, nobody_runs
from tests.support.parts import lacking
from tests.support.waiting import eventually

DUMP = b"a dump"


@pytest.fixture
def shared() -> Iterator[Path]:
    """A folder like ``/tmp``: everybody may write there, nobody may take what is another's."""
    folder = Path(tempfile.mkdtemp(prefix="shared-"))
    folder.chmod(0o1777)
    yield folder
    shutil.rmtree(folder)


def places(folder: Path) -> Places:
    return Places(files=(folder / "trace_0",), pipe=folder / "pipe_0.pipe")


def found(where: Places) -> bytes:
    dump = on_disk(where)
    assert dump is not None
    return read_dump(dump)


def test_what_the_ranks_user_wrote_is_read(shared: Path) -> None:
    assert on_disk(places(shared)) is None
    (shared / "trace_0").write_bytes(DUMP)
    assert found(places(shared)) == DUMP


def test_a_file_of_theirs_is_no_evidence(shared: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    as_nobody((shared / "trace_0").write_bytes, DUMP)
    with pytest.raises(NoDumpError, match=f"trace_0: belongs to user {NOBODY}"):
        on_disk(places(shared))
    monkeypatch.setenv(TRUSTED_UIDS_VARIABLE, str(NOBODY))
    assert found(places(shared)) == DUMP


def test_a_file_of_ours_is_no_evidence_of_another_users_rank(shared: Path) -> None:
    (shared / "trace_0").write_bytes(DUMP)
    where = Places(files=(shared / "trace_0",), owner=NOBODY)
    with pytest.raises(NoDumpError, match="belongs to user 0"):
        on_disk(where)
    as_nobody((shared / "of_nobody").write_bytes, DUMP)
    assert found(Places(files=(shared / "of_nobody",), owner=NOBODY)) == DUMP


@pytest.mark.parametrize("target", ["/proc/self/environ", "/etc/shadow", "trace_1", "/dev/zero"])
@pytest.mark.parametrize("theirs", [True, False])
def test_a_link_in_its_place_is_not_followed(shared: Path, target: str, theirs: bool) -> None:
    (shared / "trace_1").write_bytes(DUMP)
    link = shared / "trace_0"
    as_nobody(os.symlink, target, link) if theirs else os.symlink(target, link)
    with pytest.raises(NoDumpError, match="trace_0: is a symbolic link"):
        on_disk(places(shared))


def test_a_link_of_theirs_on_the_way_is_not_followed(shared: Path, tmp_path: Path) -> None:
    (tmp_path / "trace_0").write_bytes(DUMP)
    as_nobody(os.symlink, tmp_path, shared / "theirs")
    with pytest.raises(NoDumpError, match=f"theirs: is a symbolic link of user {NOBODY}"):
        on_disk(places(shared / "theirs"))
    (shared / "ours").symlink_to(tmp_path)
    assert found(places(shared / "ours")) == DUMP


def test_a_second_name_of_a_file_of_ours_is_not_read(shared: Path, tmp_path: Path) -> None:
    secret = shared / "secret"
    secret.write_bytes(b"a token")
    os.link(secret, shared / "trace_0")
    with pytest.raises(NoDumpError, match="2 names"):
        on_disk(places(shared))


def test_a_pipe_or_a_device_in_its_place_holds_nobody_up(shared: Path) -> None:
    as_nobody(os.mkfifo, shared / "trace_0")
    begun = time.monotonic()
    with pytest.raises(NoDumpError, match="no regular file"):
        on_disk(places(shared))
    assert time.monotonic() - begun < 5
    (shared / "trace_0").unlink()
    (shared / "trace_0").mkdir()
    with pytest.raises(NoDumpError, match="no regular file"):
        on_disk(places(shared))


def test_what_takes_the_place_of_a_dump_that_was_found_is_not_read(shared: Path) -> None:
    (shared / "trace_0").write_bytes(DUMP)
    dump = on_disk(places(shared))
    assert dump is not None
    (shared / "trace_0").unlink()
    as_nobody(os.symlink, "/etc/shadow", shared / "trace_0")
    with pytest.raises(NoDumpError, match="symbolic link"):
        read_dump(dump)


def test_a_pipe_of_theirs_is_not_written_to(shared: Path) -> None:
    as_nobody(os.mkfifo, shared / "pipe_0.pipe")
    reading = os.open(shared / "pipe_0.pipe", os.O_RDONLY | os.O_NONBLOCK)
    try:
        with pytest.raises(NoDumpError, match=f"pipe_0.pipe: belongs to user {NOBODY}"):
            by_pipe(places(shared), 0.1)
        assert os.read(reading, 10) == b""
    finally:
        os.close(reading)


def test_a_file_in_the_pipes_place_is_not_written_to(shared: Path) -> None:
    (shared / "victim").write_bytes(b"kept")
    as_nobody(os.symlink, shared / "victim", shared / "pipe_0.pipe")
    with pytest.raises(NoDumpError, match="symbolic link"):
        by_pipe(places(shared), 0.1)
    assert (shared / "victim").read_bytes() == b"kept"


def test_theirs_in_one_place_does_not_hide_ours_in_another(shared: Path) -> None:
    as_nobody((shared / "trace_0").write_bytes, b"theirs")
    (shared / "other_0").write_bytes(DUMP)
    assert found(Places(files=(shared / "trace_0", shared / "other_0"))) == DUMP


def test_theirs_does_not_keep_the_watchdog_from_being_asked(shared: Path) -> None:
    as_nobody((shared / "trace_0").write_bytes, b"theirs")
    where = Places(files=(shared / "trace_0", shared / "other_0"), pipe=shared / "pipe")
    os.mkfifo(shared / "pipe")
    reading = os.open(shared / "pipe", os.O_RDONLY | os.O_NONBLOCK)

    def sleep(_: float) -> None:
        with contextlib.suppress(BlockingIOError):
            if os.read(reading, 10):
                (shared / "other_0").write_bytes(DUMP)

    try:
        assert read_dump(by_pipe(where, 5.0, sleep=sleep)) == DUMP
    finally:
        os.close(reading)


def rank_of(process: ProcessId, number: int) -> Rank:
    return Rank(id=RankId(job="j", attempt=0, rank=number), process=process, node="n")


def sleep_for_long() -> None:
    time.sleep(60)


def test_the_user_of_a_process_is_found(shared: Path) -> None:
    assert uid_of(os.getpid()) == os.geteuid()
    with nobody_runs(sleep_for_long) as pid:
        deadline = time.monotonic() + 10
        while uid_of(pid) != NOBODY:
            assert time.monotonic() < deadline
            time.sleep(0.01)
    with pytest.raises(OSError):
        uid_of(2**22)


def test_a_living_ranks_dump_is_its_own_users(shared: Path) -> None:
    """Root's agent, a rank of root's, and another user who was there first."""
    environ = {**os.environ, "TORCH_FR_DUMP_TEMP_FILE": str(shared / "trace_")}
    rank_process = subprocess.Popen(["sleep", "60"], env=environ)
    try:
        process = ProcessId(host="h", pid=rank_process.pid, start=start_ticks(rank_process.pid))
        rank = rank_of(process, 0)
        recorders = Recorders()
        as_nobody((shared / "trace_0").write_bytes, DUMP)
        with pytest.raises(NoDumpError, match=f"belongs to user {NOBODY}"):
            recorders.find(rank, 0.1)
        (shared / "trace_0").unlink()
        (shared / "trace_0").write_bytes(DUMP)
        assert read_dump(recorders.find(rank, 0.1)) == DUMP
    finally:
        rank_process.kill()
        rank_process.wait()
    assert read_dump(recorders.find(rank, 0.1)) == DUMP


def comm_of(pid: int) -> str:
    return Path(f"/proc/{pid}/comm").read_text()


def test_a_dump_in_a_mount_of_the_ranks_own_is_found(shared: Path) -> None:
    """As in a container: its ``/tmp`` is not ours, and a link in it leads nowhere else."""
    own = shared / "own"
    own.mkdir()
    environ = {**os.environ, "TORCH_FR_DUMP_TEMP_FILE": str(own / "trace_")}
    script = (
        f"mount -t tmpfs none {own} && printf inside > {own}/trace_0 && "
        f"ln -s /proc/self/environ {own}/trace_1 && echo ready && exec sleep 60"
    )
    rank_process = subprocess.Popen(
        ["unshare", "-m", "sh", "-c", script],
        env=environ,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    try:
        assert rank_process.stdout is not None
        if rank_process.stdout.readline() != b"ready\n":
            lacking("nothing can be mounted here: run the tests as root")
        process = ProcessId(host="h", pid=rank_process.pid, start=start_ticks(rank_process.pid))
        # Until then it has no environment, which the kernel sets up anew.
        eventually(lambda: comm_of(process.pid) == "sleep\n", "it has become what it will be")
        assert read_dump(Recorders().find(rank_of(process, 0), 0.1)) == b"inside"
        with pytest.raises(NoDumpError, match="symbolic link"):
            Recorders().find(rank_of(process, 1), 0.1)
    finally:
        rank_process.kill()
        rank_process.wait()


def test_links_do_not_leave_the_root_that_is_walked(shared: Path) -> None:
    inner = shared / "root" / "inner"
    inner.mkdir(parents=True)
    (shared / "root" / "file").write_bytes(DUMP)
    (inner / "up").symlink_to("../../../../../../..")
    (inner / "absolute").symlink_to("/")
    for path in ("/inner/up/file", "/inner/absolute/file", "/../../file"):
        with open(open_evidence(Path(path), os.geteuid(), root=str(shared / "root")), "rb") as file:
            assert file.read() == DUMP


def test_no_descriptor_is_left_open(shared: Path) -> None:
    as_nobody((shared / "trace_0").write_bytes, DUMP)
    (shared / "ours").write_bytes(DUMP)
    before = len(os.listdir("/proc/self/fd"))
    for name in ("trace_0", "none", "none/below", "ours/below"):
        with pytest.raises((ForeignFileError, OSError)):
            open_evidence(shared / name, os.geteuid())
    assert len(os.listdir("/proc/self/fd")) == before
