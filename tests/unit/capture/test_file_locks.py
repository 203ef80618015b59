"""Who waits for which lock on a file, as the kernel tells."""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
from pathlib import Path

import pytest

from ray_sentinel.actors.agent.node_evidence import Evidence
from ray_sentinel.capture.file_locks import awaited_locks
from ray_sentinel.config import Config
from ray_sentinel.model.identity import ProcessId
from ray_sentinel.progress.proc.proc_stat import read_stat
from tests.support.waiting import eventually

WAITER = "import fcntl, sys; fcntl.{how}(open(sys.argv[1], 'w'), fcntl.LOCK_EX)"


def process_of(pid: int) -> ProcessId:
    stat = read_stat(pid)
    assert stat is not None
    return ProcessId("host1", pid, stat.start)


@pytest.mark.parametrize("how", ["flock", "lockf"])
def test_who_waits_and_who_holds(how: str, tmp_path: Path) -> None:
    path = tmp_path / "a lock"
    with path.open("w") as held:
        getattr(fcntl, how)(held, fcntl.LOCK_EX)
        # The shell stays: it has another command to run.
        code = f'{sys.executable} -c "$0" "$1"; exit'
        program = WAITER.format(how=how)
        waiters = [
            subprocess.Popen(["sh", "-c", code, program, str(path)], start_new_session=True)
            for _ in range(2)
        ]
        try:
            ours, shells = process_of(os.getpid()), [process_of(one.pid) for one in waiters]
            eventually(lambda: len(awaited_locks([ours, *shells])) == 2, "both wait", 30.0)
            found = awaited_locks([ours, *shells])
            assert {one.who for one in found} == set(shells)
            assert all(one.asker not in shells for one in found), "a child of the shell waits"
            assert {(one.whom, one.answerer, one.lock) for one in found} == {
                (ours, ours, str(path))
            }
            told = Evidence("host1", Config(), lambda _: None).connections(
                [ours.pid, *(one.pid for one in shells)]
            )
            assert {one.who for one in told.locks} == set(shells), "an agent tells of it"
            strangers = {one.stranger for one in awaited_locks(shells)}
            stat = read_stat(os.getpid())
            assert stat is not None
            assert strangers == {stat.command}
            assert {one.stranger for one in found} == {""}
            assert awaited_locks([ours]) == (), "what waits is below the holder itself"
        finally:
            for one in waiters:
                os.killpg(one.pid, 9)
                one.wait()


def test_open_file_description_locks_belong_to_nobody(tmp_path: Path) -> None:
    (tmp_path / "locks").write_text(
        "1: OFDLCK ADVISORY  WRITE -1 fe:00:7 0 EOF\n"
        f"1: -> FLOCK  ADVISORY  WRITE {os.getpid()} fe:00:7 0 EOF\n"
    )
    assert awaited_locks([process_of(os.getpid())], proc=tmp_path) == ()
