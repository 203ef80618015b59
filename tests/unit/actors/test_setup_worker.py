"""The tests' program before each worker becomes the worker that Ray's own would."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from typing import Any

import pytest

from tests.support.ray_parts import setup_worker

COMMAND = ["-s", "/a folder/default_worker.py", "--name=it's", "--port=7"]
CONTEXTS: list[dict[str, Any]] = [
    {"env_vars": {"ONE": "1", "PATHS": "/new:${PATHS}", "NONE": "${NOT_SET}x"}},
    {"command_prefix": ["cd", "/tmp", "&&"], "py_executable": "/other/python -X dev"},
]


def became(monkeypatch: pytest.MonkeyPatch, begin: Callable[[], None]) -> tuple[Any, ...]:
    """What is executed, and with which variables."""
    found: list[tuple[Any, ...]] = []

    def execute(file: str, args: list[str]) -> None:
        found.append((file, args, {key: os.environ.get(key) for key in ("ONE", "PATHS", "NONE")}))

    with monkeypatch.context() as patch:
        patch.setenv("PATHS", "/old")
        for name in ("ONE", "NONE"):
            patch.setenv(name, "")  # taken back at the end
        patch.setattr(os, "execvp", execute)
        begin()
    (one,) = found
    return one


@pytest.mark.parametrize("context", CONTEXTS)
def test_it_becomes_the_same(monkeypatch: pytest.MonkeyPatch, context: dict[str, Any]) -> None:
    from ray._private.runtime_env.context import RuntimeEnvContext
    from ray.core.generated.common_pb2 import Language

    told = ["--language=PYTHON", f"--serialized-runtime-env-context={json.dumps(context)}"]
    monkeypatch.setattr(sys, "argv", ["setup_worker.py", *COMMAND, *told])
    theirs = RuntimeEnvContext.deserialize(json.dumps(context))
    python = Language.Value("PYTHON")
    assert became(monkeypatch, setup_worker.main) == became(
        monkeypatch, lambda: theirs.exec_worker(list(COMMAND), python)
    )
