"""A rank gets nothing into a bundle that its own user may not read, and holds nobody up."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from ray_sentinel.capture.rank_output import LOOK_SECONDS, READ_SECONDS, WAIT_SECONDS, RankOutputs
from ray_sentinel.model.identity import ProcessId, Rank, RankId
from ray_sentinel.model.incident import RankOutput, writer_of
from ray_sentinel.progress.rank.own_process import start_ticks
from tests.support.hanging_disk import hanging_disk
from tests.support.other_user import as_nobody, nobody_runs
from tests.support.waiting import eventually

SECRET = "of root's alone"


def writes_to(file: Path | int, said: Path) -> None:
    """As a rank whose output goes to ``file``; it says in ``said`` that it does."""
    handle = file if isinstance(file, int) else os.open(file, os.O_WRONLY | os.O_CREAT, 0o600)
    os.dup2(handle, 1)
    os.dup2(handle, 2)
    os.write(1, b"mine\n")
    said.write_text("x")
    time.sleep(60)


def rank_of(pid: int) -> Rank:
    who = ProcessId("host", pid, start_ticks(pid))
    return Rank(id=RankId("job", 0, 0), process=who, node="node")


def read(outputs: RankOutputs, rank: Rank) -> RankOutput:
    (found,) = outputs.gather([writer_of(rank)], 1 << 20)
    return found


def test_the_file_of_another_user_that_a_rank_was_handed_is_not_read(open_folder: Path) -> None:
    file = open_folder / "root.log"
    file.write_text(SECRET + "\n")
    file.chmod(0o600)
    handle = os.open(file, os.O_WRONLY | os.O_APPEND)
    with nobody_runs(writes_to, handle, open_folder / "ready") as pid:
        os.close(handle)
        eventually((open_folder / "ready").exists, "it has written")
        found = read(RankOutputs("a"), rank_of(pid))
    assert found.data == b""
    assert "belongs to user 0, not to the process's user" in found.log.missing


@pytest.mark.parametrize("how", [os.symlink, os.link])
def test_a_link_in_the_place_of_a_dead_ranks_file_is_not_followed(
    open_folder: Path, how: object
) -> None:
    secret, file = open_folder / "secret", open_folder / "log"
    secret.write_text(SECRET)
    secret.chmod(0o600)
    outputs = RankOutputs("a")
    with nobody_runs(writes_to, file, open_folder / "ready") as pid:
        eventually((open_folder / "ready").exists, "it has written")
        rank = rank_of(pid)
        outputs.note([rank.process])
    as_nobody(os.unlink, file)
    if how is os.link:
        os.link(secret, file)  # where the kernel's fs.protected_hardlinks is off anybody may
    else:
        as_nobody(os.symlink, secret, file)
    found = read(outputs, rank)
    assert SECRET.encode() not in found.data
    assert found.data == b""
    assert found.log.ended
    assert found.log.missing


def test_the_own_file_of_another_users_rank_is_read(open_folder: Path) -> None:
    with nobody_runs(writes_to, open_folder / "log", open_folder / "ready") as pid:
        eventually((open_folder / "ready").exists, "it has written")
        found = read(RankOutputs("a"), rank_of(pid))
    assert b"mine" in found.data


def test_a_file_system_that_hangs_costs_a_bounded_time_and_is_named(tmp_path: Path) -> None:
    with hanging_disk(tmp_path) as disk:
        ready = tmp_path / "ready"
        outputs = RankOutputs("a")
        pid = os.fork()
        if not pid:
            try:
                writes_to(disk.path / "log", ready)
            finally:
                os._exit(0)
        try:
            eventually(ready.exists, "it has written")
            rank = rank_of(pid)
            outputs.note([rank.process])
            disk.hang()
            begun = time.monotonic()
            found = [read(outputs, rank) for _ in range(2)]
            took = time.monotonic() - begun
            disk.answer()
        finally:
            os.kill(pid, 9)
            os.waitpid(pid, 0)
    assert took < 2 * (LOOK_SECONDS + READ_SECONDS + WAIT_SECONDS)
    assert all("does not answer" in output.log.missing for output in found)
