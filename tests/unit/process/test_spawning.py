"""What is kept of children."""

from __future__ import annotations

import gc
import os
import subprocess
import weakref

import pytest

from ray_sentinel import process, signals
from ray_sentinel.kernel_files import parse_environ
from ray_sentinel.process import spawning


def test_a_child_that_could_not_be_ended_is_reaped_when_it_has(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    child = process.spawn(["cat"], stdin=subprocess.PIPE)
    with monkeypatch.context() as hung:
        # As in D state: signals come when the kernel lets it.
        hung.setattr(signals, "send_group", lambda *_: None)
        hung.setattr(spawning, "KILL_GRACE", 0.0)
        assert not process.end(child)
    for pipe in (child.stdin, child.stdout, child.stderr):
        assert pipe is not None
        pipe.close()
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
    assert process.run(["true"], deadline=20).ok
    assert child.returncode is not None, "no zombie is left"
    ended: list[int] = []
    monkeypatch.setattr(signals, "send_group", lambda one, _number: ended.append(one.pid))
    spawning.end_all()
    assert child.pid not in ended, "its number may be another's by then"
    kept = weakref.ref(child)
    del child, pipe
    gc.collect()
    assert kept() is None, "it is forgotten"


def test_all_variables_are_handed_on_also_those_that_no_shell_could_have() -> None:
    odd = {"a.b": "1", "my-key": "2", "BASH_FUNC_module%%": "() { :; }"}
    done = process.run(["env", "-0"], env={"PATH": os.environ["PATH"], **odd}, deadline=20)
    assert done.ok
    assert odd.items() <= parse_environ(done.stdout).items()
