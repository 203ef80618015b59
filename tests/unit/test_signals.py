"""No signal reaches a process that has got the number of an ended one."""

from __future__ import annotations

import ast
import errno
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from ray_sentinel import process, signals
from ray_sentinel.process import spawning
from tests.support.parts import lacking
from tests.support.waiting import eventually

ROOT = Path(__file__).parents[2]

RECYCLED = """
import os, signal, subprocess, sys, time
from pathlib import Path
from ray_sentinel import process, signals
from ray_sentinel.process import spawning

def again(pid, **options):
    # The kernel gives the number after this one, if that is free.
    for _ in range(200):
        Path("/proc/sys/kernel/ns_last_pid").write_text(str(pid - 1))
        child = subprocess.Popen(["sleep", "60"], **options)
        if child.pid == pid:
            return child
        child.kill()
        child.wait()
    sys.exit("the number cannot be had again")

def lives(child):
    time.sleep(0.05)
    assert child.poll() is None, "an innocent process was signalled"
    child.kill()
    child.wait()

def ended(how):
    child = process.spawn(["sleep", "60"], death_signal=False)
    start = signals.start_of(child.pid)
    os.kill(child.pid, signal.SIGKILL)
    how(child)
    time.sleep(0.03)  # a tick and more: two processes of one number differ in their start
    return child, start

child, start = ended(lambda child: child.wait())
other = again(child.pid, start_new_session=True)
assert signals.send(child.pid, start, signal.SIGKILL) is False
assert signals.send_child(child, signal.SIGKILL) is False
handle = os.pidfd_open(other.pid)
assert signals.send_through(handle, child.pid, start, signal.SIGKILL) is False
assert signals.send_through(-1, child.pid, start, signal.SIGKILL) is False
del os.pidfd_open
assert signals.send(child.pid, start, signal.SIGKILL) is False
signals.send_group(child, signal.SIGKILL)
process.kill(child)
process.end(child)
process.end(child, grace=0.1)
spawning.finish(child)
process.end_all()
lives(other)

# Reaped behind Popen's back, as by a reaper of all children.
child, start = ended(lambda child: os.waitpid(child.pid, 0))
other = again(child.pid, start_new_session=True)
signals.send_group(child, signal.SIGKILL)
process.end(child)
lives(other)

from ray_sentinel.collect import child_registry
from ray_sentinel.progress.discovery.descendants import Descendant
from ray_sentinel.capture import guard
child, start = ended(lambda child: child.wait())
other = again(child.pid, start_new_session=True)
child_registry.kill(child_registry.SpawnedGroup(child.pid, start, "family"))
Descendant(child.pid, start, "sleep", start).signal(signal.SIGKILL)
os.kill(other.pid, signal.SIGSTOP)
guard._continue(child.pid, start, -1)
time.sleep(0.05)
assert Path(f"/proc/{other.pid}/stat").read_text().split()[2] == "T", "continued by another's"
os.kill(other.pid, signal.SIGCONT)
lives(other)
print("innocents live")
"""


def test_of_a_recycled_number(tmp_path: Path) -> None:
    inside = ["unshare", "--pid", "--fork", "--mount-proc", "--kill-child"]
    if subprocess.run([*inside, "true"], capture_output=True).returncode:
        lacking("a PID namespace of one's own: run as root")
    done = subprocess.run(
        [*inside, sys.executable, "-c", RECYCLED], capture_output=True, text=True, timeout=60
    )
    if "cannot be had again" in done.stderr or "Read-only" in done.stderr:
        lacking("/proc/sys/kernel/ns_last_pid that can be written")
    assert done.stdout == "innocents live\n", done.stderr


def test_what_is_meant_is_reached_with_and_without_pidfds(monkeypatch: pytest.MonkeyPatch) -> None:
    def none(*_: object) -> int:
        raise OSError(errno.ENOSYS, "Function not implemented")

    def refused(*_: object) -> None:
        raise PermissionError(errno.EPERM, "as a seccomp filter says")

    for patch in (
        lambda: None,
        lambda: monkeypatch.setattr(os, "pidfd_open", none),
        lambda: monkeypatch.undo(),
        lambda: monkeypatch.setattr(signal, "pidfd_send_signal", refused),
        lambda: monkeypatch.delattr(signal, "pidfd_send_signal"),
    ):
        patch()
        with subprocess.Popen(["sleep", "60"]) as child:
            assert signals.send_child(child, signal.SIGTERM)
            assert child.wait(10) == -signal.SIGTERM
            assert not signals.send_child(child, signal.SIGTERM)


def test_an_ended_child_is_not_reaped_before_its_group_is_ended(tmp_path: Path) -> None:
    left = tmp_path / "left"
    child = process.spawn(["sh", "-c", f"sleep 60 & echo $! > {left}"], stdout=None, stderr=None)
    eventually(lambda: signals.has_ended(child), "the shell ends")
    assert child.returncode is None
    pid = int(left.read_text())
    start = signals.start_of(pid)
    assert start is not None
    spawning.finish(child)
    assert child.returncode == 0
    eventually(lambda: signals.start_of(pid) != start, "what it left is ended")


def test_what_the_reaped_left_in_their_group_is_still_reached(tmp_path: Path) -> None:
    left = tmp_path / "left"
    child = process.spawn(["sh", "-c", f"sleep 60 & echo $! > {left}"], stdout=None, stderr=None)
    child.wait(10)
    pid = int(left.read_text())
    start = signals.start_of(pid)
    assert start is not None
    process.kill(child)
    eventually(lambda: signals.start_of(pid) != start, "what it left is ended")


SENDERS = {"kill", "killpg", "pidfd_send_signal", "send_signal", "terminate"}
ALLOWED = {
    "ray_sentinel/signals.py",
    # A program of its own, of the standard library alone; it does as ``signals`` does.
    "ray_sentinel/capture/watchman.py",
}
OURS = {"ray", "process", "programs", "self._ray", "ray_sentinel", "self._worker"}
"""Before ``.kill(``: actors, and what goes through ``signals`` itself."""


def test_nobody_else_sends_signals() -> None:
    found = []
    for path in sorted((ROOT / "ray_sentinel").rglob("*.py")):
        name = str(path.relative_to(ROOT))
        # The demo's scripts are training programs that harm themselves.
        if name in ALLOWED or name.startswith("ray_sentinel/demo/scripts/"):
            continue
        text = path.read_text()
        if not any(f".{sender}(" in text for sender in SENDERS):
            continue
        for node in ast.walk(ast.parse(text)):
            if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)):
                continue
            of = ast.unparse(node.func.value)
            harmless = len(node.args) > 1 and ast.unparse(node.args[1]) == "0"
            if node.func.attr in SENDERS and of not in OURS and not harmless:
                found.append(f"{name}:{node.lineno}: {ast.unparse(node)}")
    assert found == [], "signals go through ray_sentinel/signals.py"
