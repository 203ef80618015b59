"""Whether a process may be traced, with and without Yama."""

import os

import pytest

from ray_sentinel.progress.proc.tracing import may_trace
from ray_sentinel.progress.rank.lifecycle import allow_tracing
from ray_sentinel.progress.rank.watchdog import ptrace_is_forbidden
from tests.support.parts import needs_root


def test_ourselves_and_nobody():
    assert may_trace(os.getpid())
    assert may_trace(0) is None


@needs_root()
def test_another_users_process():
    os.seteuid(65534)
    try:
        assert may_trace(1) is False
    finally:
        os.seteuid(0)


@pytest.mark.parametrize(("scope", "forbidden"), [("0", False), ("1", False), ("2", True)])
def test_yama(tmp_path, scope, forbidden):
    folder = tmp_path / "sys/kernel/yama"
    folder.mkdir(parents=True)
    (folder / "ptrace_scope").write_text(scope + "\n")
    assert ptrace_is_forbidden(tmp_path) is forbidden
    if scope != "1":
        assert not allow_tracing(tmp_path)


def test_without_yama(tmp_path):
    assert not ptrace_is_forbidden(tmp_path)
    assert not allow_tracing(tmp_path)
