"""``ray-sentinel run`` with commands and surroundings that make trouble; nothing here trains."""

from __future__ import annotations

import fcntl
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.living import alive
from tests.support.small_disk import small_disk
from tests.support.supervised_run import RUN, SECONDS, Run, run_in, until

pytestmark = pytest.mark.integration


@pytest.fixture
def run(tmp_path: Path) -> Iterator[Run]:
    with run_in(tmp_path) as made:
        yield made


def test_names_that_are_no_text(run: Run, tmp_path: Path) -> None:
    saved = os.fsencode(tmp_path) + b"/saved\xff"
    os.makedirs(saved + b"/step_3")
    Path(os.fsdecode(saved + b"/step_3/model.bin")).write_bytes(b"x")
    code, out, err = run.run(
        *("printf", "%s:%s:", "{checkpoint}", b"a\xfeb"),
        options=("--json", "--checkpoint-dir", saved),
        env={b"ODD": b"\xff"},
    )
    assert code == 0, err
    assert json.loads(out)["success"]
    printed = (run.root / "run/job/attempt-0000/output.log").read_bytes()
    assert printed == saved + b"/step_3:a\xfeb:"
    assert "saved\\udcff/step_3" in err


def test_checkpoints_with_newlines_in_their_names(run: Run, tmp_path: Path) -> None:
    saved = tmp_path / "saved\nhere"
    for name in ("step_3", "st\nep_9", "step_12\n"):
        (saved / name).mkdir(parents=True)
        (saved / name / "model.bin").write_bytes(b"x")
    code, out, err = run.run(
        "sh", "-c", 'test -d "$1" && echo "there:$1:"', "-", "{checkpoint}",
        options=("--checkpoint-dir", str(saved)),
    )  # fmt: skip
    assert code == 0, err
    assert out == f"there:{saved}/step_12\n:\n"
    assert all(line.startswith("ray-sentinel ") for line in err.splitlines()), err


def test_a_checkpoint_folder_that_vanishes_between_two_attempts(run: Run, tmp_path: Path) -> None:
    (tmp_path / "saved/step_3").mkdir(parents=True)
    (tmp_path / "saved/step_3/model.bin").write_bytes(b"x")
    script = f"test -e {tmp_path}/saved && rm -r {tmp_path}/saved; exit 3"
    code, _, err = run.run(
        *("sh", "-c", script), options=("--checkpoint-dir", str(tmp_path / "saved"))
    )
    assert code == 1
    assert "not restarted, because the checkpoints have vanished" in err
    assert not run.state(1), "training would begin from nothing"


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"#!/bin/sh\nrm $0\nexit 5\n", "train.sh: there is no such program"),
        (b"#!/no/such/interpreter\n", "not restarted, because the command was not found"),
        (b"\x7fELF and no program", "not restarted, because the command is not executable"),
    ],
)
def test_a_program_that_cannot_be_started(
    run: Run, tmp_path: Path, content: bytes, says: str
) -> None:
    program = tmp_path / "train.sh"
    program.write_bytes(content)
    program.chmod(0o755)
    code, out, err = run.run(str(program), options=("--json",))
    assert code == 1, err
    assert says in json.loads(out)["reason"]


def test_what_the_kernel_refuses_to_start(tmp_path: Path) -> None:
    # The longest argument has 128 KiB (man 2 execve, MAX_ARG_STRLEN): only from Python can one
    # give a longer one.
    script = (
        "import ray_sentinel\n"
        "result = ray_sentinel.run(['true', 'x' * 300_000], job='job', page='')\n"
        "print(result.success, result.total_retries, result.reason)\n"
    )
    ended = subprocess.run(
        [sys.executable, "-c", script],
        env={**os.environ, "RAY_SENTINEL_LOG_DIR": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=True,
    )
    says = "not restarted, because the command cannot be started: Argument list too long"
    assert ended.stdout == f"False 0 {says}\n"


def test_a_terminal_that_nobody_reads_holds_nothing_up(run: Run, tmp_path: Path) -> None:
    reading, writing = os.pipe()
    fcntl.fcntl(writing, fcntl.F_SETPIPE_SZ, 4096)
    errors = tmp_path / "errors"
    flood = "head -c 3000000 /dev/zero; exit 3"
    try:
        with errors.open("wb") as err:
            started = run.start(
                "sh", "-c", flood, options=("--max-retries", "1"), stdout=writing, stderr=err
            )
        assert started.wait(timeout=SECONDS) == 1
    finally:
        os.close(reading)
        os.close(writing)
    assert "given up after 1 restart" in errors.read_text()


@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"])
def test_streams_that_are_closed(run: Run, closed: str) -> None:
    line = f'exec "$@" {closed}'
    environ = {**os.environ, "RAY_SENTINEL_LOG_DIR": str(run.root)}
    ended = subprocess.run(
        ["sh", "-c", line, "-", *RUN, "--job", "job", "--", "sh", "-c", "cat; echo hi; exit 0"],
        env=environ,
        capture_output=True,
        timeout=SECONDS,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr
    assert (run.root / "run/job/attempt-0000/output.log").read_bytes() == b"hi\n"


def test_a_current_folder_that_was_removed(run: Run, tmp_path: Path) -> None:
    (tmp_path / "gone").mkdir()
    ended = subprocess.run(
        ["sh", "-c", 'cd "$1" && rmdir "$1" && shift && exec "$@"', "-", str(tmp_path / "gone"),
         *RUN, "--job", "job", "--", "true"],
        env={**os.environ, "RAY_SENTINEL_LOG_DIR": str(run.root)},
        capture_output=True,
        timeout=SECONDS,
        check=False,
    )  # fmt: skip
    assert ended.returncode == 2
    assert (
        ended.stderr == b"ray-sentinel: the current folder was removed: cd to one that is there\n"
    )


def test_a_keeper_that_is_killed_leaves_nobody_behind(run: Run, tmp_path: Path) -> None:
    script = f"setsid sleep 300 & echo $! > {tmp_path}/$RAY_SENTINEL_ATTEMPT; sleep 300"
    started = run.start("sh", "-c", script)
    state = run.until_it_runs()
    pid = int(until(lambda: (tmp_path / "0").exists() and (tmp_path / "0").read_text()))
    os.kill(state["keeper"], signal.SIGKILL)
    run.until_it_runs(1)
    assert not alive(state["child"])
    assert not alive(pid), "two of it would train at once"
    started.terminate()
    code, _, err = run.end(started)
    assert code == 143
    assert f"left behind, and ended: {pid} sleep" in err
    assert "killed together with its keeper" in err


def test_grandchildren_in_sessions_of_their_own_that_ignore_signals(
    run: Run, tmp_path: Path
) -> None:
    script = (
        "import os, signal, time\n"
        "if os.fork() == 0:\n"
        "    os.setsid()\n"
        "    for one in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):\n"
        "        signal.signal(one, signal.SIG_IGN)\n"
        "    if os.fork() == 0:\n"
        f"        open('{tmp_path}/pid', 'w').write(str(os.getpid()))\n"
        "        time.sleep(300)\n"
        "    os._exit(0)\n"
        f"while not os.path.exists('{tmp_path}/pid') or not open('{tmp_path}/pid').read():\n"
        "    time.sleep(0.05)\n"
    )
    code, _, err = run.run(sys.executable, "-c", script)
    pid = int((tmp_path / "pid").read_text())
    assert code == 0, err
    assert f"left behind, and ended: {pid}" in err
    assert not alive(pid)


def test_a_second_ctrl_c_does_not_wait_for_the_grace(run: Run) -> None:
    script = "trap '' INT TERM; echo up; while :; do sleep 0.2; done"
    started = run.start("sh", "-c", script, options=("--grace", "300"))
    log = run.root / "run/job/attempt-0000/output.log"
    until(lambda: log.exists() and log.read_text() == "up\n")
    started.send_signal(signal.SIGINT)
    time.sleep(1.0)
    assert started.poll() is None
    started.send_signal(signal.SIGINT)
    code, _, _ = run.end(started)
    assert code == 130
    assert not alive(run.state()["child"])


def test_a_command_that_is_stopped_can_be_ended(run: Run) -> None:
    started = run.start("sh", "-c", "kill -STOP $$; sleep 300", options=("--grace", "0.5"))
    state = run.until_it_runs()
    until(lambda: " T " in Path(f"/proc/{state['child']}/stat").read_text())
    started.terminate()
    code, _, err = run.end(started)
    assert code == 143, err
    assert not alive(state["child"])


def test_a_ledger_that_is_gone_does_not_start_a_second_one(run: Run, tmp_path: Path) -> None:
    script = f"echo $$ >> {tmp_path}/pids; until test -e {tmp_path}/go; do sleep 0.1; done"
    started = run.start("sh", "-c", script)
    run.until_it_runs()
    until((tmp_path / "pids").exists)
    started.kill()
    started.communicate(timeout=SECONDS)
    (run.root / "run/job/ledger.json").write_text('{"argv": [')
    again = run.start("sh", "-c", script)
    assert again.stderr is not None
    first = again.stderr.readline()
    (tmp_path / "go").touch()
    code, _, err = run.end(again)
    assert b"taking back attempt 0" in first
    assert code == 0, err
    assert len((tmp_path / "pids").read_text().split()) == 1


@pytest.mark.parametrize("status", [0, 3])
def test_a_disk_that_fills_up_while_it_runs(run: Run, tmp_path: Path, status: int) -> None:
    with small_disk(tmp_path / "disk", "256k") as disk:
        run.root = disk / "log"
        script = f"head -c 999999 /dev/zero > {disk}/fill; seq 20000; exit {status}"
        code, out, err = run.run("sh", "-c", script, options=("--json", "--max-retries", "1"))
        result, state = json.loads(out), run.state()
        (disk / "fill").unlink()
        after = run.run("true")
    assert (code, state["code"]) == (1 if status else 0, status), err
    assert result["success"] == (status == 0)
    assert state["lost_bytes"] > 0, "output is lost, and the command does not wait"
    if status:
        assert "No space left on device; free space" in result["reason"]
    assert after[0] == 0, after[2]


def test_a_disk_that_is_full_before_the_start(run: Run, tmp_path: Path) -> None:
    with small_disk(tmp_path / "disk", "256k") as disk:
        run.root = disk / "log"
        subprocess.run(
            ["sh", "-c", f"head -c 999999 /dev/zero > {disk}/fill"],
            stderr=subprocess.DEVNULL,
            check=False,
        )
        code, _, err = run.run("true")
    assert code == 1
    assert "Traceback" not in err
    assert "No space left on device" in err
    assert "RAY_SENTINEL_LOG_DIR" in err


def test_below_nohup_it_outlives_its_terminal(run: Run, tmp_path: Path) -> None:
    script = f"until test -e {tmp_path}/go; do sleep 0.1; done"
    started = run.start("sh", "-c", script, behind=("nohup",))
    run.until_it_runs()
    started.send_signal(signal.SIGHUP)
    time.sleep(0.5)
    assert started.poll() is None
    (tmp_path / "go").touch()
    assert run.end(started)[0] == 0


@pytest.fixture
def _no_nohup() -> Iterator[None]:
    """The tests themselves may run under nohup, and programs inherit what is ignored."""
    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)
    yield
    signal.signal(signal.SIGHUP, before)


@pytest.mark.usefixtures("_no_nohup")
def test_without_nohup_a_terminal_that_goes_ends_it(run: Run) -> None:
    started = run.start("sleep", "300")
    state = run.until_it_runs()
    started.send_signal(signal.SIGHUP)
    assert run.end(started)[0] == 128 + signal.SIGHUP
    assert not alive(state["child"])


def test_a_webhook_that_hangs_delays_nothing_and_is_said_at_the_end(run: Run) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        hook = f"http://127.0.0.1:{server.getsockname()[1]}/hook"
        begun = time.monotonic()
        code, _, err = run.run(
            "sh", "-c", "exit 3", options=("--max-retries", "2", "--notify-webhook", hook)
        )
    assert code == 1
    assert "given up after 2 restarts" in err
    assert "not everybody was told" in err
    assert time.monotonic() - begun < 30
