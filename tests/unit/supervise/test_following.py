"""What the supervisor reads again and again: the attempt's state, and its output."""

from __future__ import annotations

import os
from pathlib import Path

import msgspec

from ray_sentinel.supervise.attempt.tail import LAST, OutputTail
from ray_sentinel.supervise.attempt.terminal import Terminal
from ray_sentinel.supervise.run_folder import STATE, RunFolder, State, encode

RUNNING = State(keeper=10, keeper_start=1, child=11, child_start=2, started_at=5.0)


def write(folder: RunFolder, state: State, age: float) -> None:
    """The state, as a keeper wrote it ``age`` seconds ago, over the file that is there."""
    path = folder.attempt(0) / STATE
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(encode(state))
    at = path.stat().st_mtime - age
    os.utime(path, (at, at))


def test_a_state_that_changed_is_seen_however_alike_the_files_are(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path)
    assert folder.state(0) is None
    write(folder, RUNNING, age=0.0)
    assert folder.state(0) == RUNNING
    other = msgspec.structs.replace(RUNNING, child=12)
    at = (folder.attempt(0) / STATE).stat()
    (folder.attempt(0) / STATE).write_bytes(encode(other))
    os.utime(folder.attempt(0) / STATE, ns=(at.st_mtime_ns, at.st_mtime_ns))
    assert folder.state(0) == other, "written twice within one tick of the clock"


def test_a_settled_state_is_not_read_again_until_it_changes(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path)
    write(folder, RUNNING, age=60.0)
    first = folder.state(0)
    assert first == RUNNING
    assert folder.state(0) is first
    ended = msgspec.structs.replace(RUNNING, ended_at=9.0, code=1)
    write(folder, ended, age=0.0)
    assert folder.state(0) == ended
    (folder.attempt(0) / STATE).unlink()
    assert folder.state(0) is None


def test_the_last_step_is_found_over_several_looks(tmp_path: Path) -> None:
    output = tmp_path / "output.log"
    output.write_text("loading\n")
    tail = OutputTail(tmp_path, None)
    assert tail.poll()
    assert tail.step is None
    for text in ("step 7 loss 0.5\n", "saving\n", "step 8 lo", "ss 0.4\n"):
        with output.open("a") as file:
            file.write(text)
        assert tail.poll()
    assert tail.step == 8
    with output.open("a") as file:
        file.write("x" * 2 * LAST + "\n")
    assert tail.poll()
    assert tail.step == 8, "what is known stays"
    tail.close()


def test_of_what_was_shown_before_the_last_step_is_known(tmp_path: Path) -> None:
    output = tmp_path / "output.log"
    output.write_text("x" * 2 * LAST + "\nstep 6 loss 0.5\nstep 7 loss 0.5\n")
    with (tmp_path / "screen").open("wb") as screen:
        terminal = Terminal(screen)
        tail = OutputTail(tmp_path, terminal, from_end=True)
        assert not tail.poll()
        assert tail.step == 7
        with output.open("a") as file:
            file.write("saving\n")
        assert tail.poll()
        assert tail.step == 7
        tail.close()
        terminal.close()
    assert (tmp_path / "screen").read_bytes() == b"saving\n"
