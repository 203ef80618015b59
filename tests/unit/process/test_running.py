"""Programs that are run to their end."""

from __future__ import annotations

import errno
import os
from typing import NoReturn

import pytest

from ray_sentinel import process
from ray_sentinel.process import running, spawning


def test_a_program_whose_output_cannot_be_read_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse() -> NoReturn:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    monkeypatch.setattr(running.selectors, "DefaultSelector", refuse)
    started: list[int] = []
    with pytest.raises(OSError, match="Too many open files"):
        process.run(["sleep", "600"], deadline=60, on_start=started.append)
    (pid,) = started
    assert pid not in spawning._children
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)
