"""What a node of the tests runs before each worker that has a runtime environment.

Ray's own program of this name imports all of Ray, only to set variables and to become the worker,
which imports it again: half of what a worker costs before its first call. This one does the same
for workers in Python, and leaves others to Ray's. Raylets know it by its file's name.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shlex
import sys

UNSET = re.compile(r"\$\{[A-Z0-9_]+\}")


def main() -> None:
    """Become the worker that the rest of the command line describes."""
    parser = argparse.ArgumentParser(allow_abbrev=False)
    parser.add_argument("--serialized-runtime-env-context", default="{}")
    parser.add_argument("--language", default="")
    told, command = parser.parse_known_args()
    context = json.loads(told.serialized_runtime_env_context)
    if told.language != "PYTHON" or context.get("override_worker_entrypoint"):
        _leave_to_ray()
    for name, value in (context.get("env_vars") or {}).items():
        os.environ[name] = UNSET.sub("", os.path.expandvars(value))
    python = context.get("py_executable") or sys.executable
    words = [*(context.get("command_prefix") or ()), "exec", python, *map(shlex.quote, command)]
    os.execvp("bash", ["bash", "-c", " ".join(words)])


def _leave_to_ray() -> None:
    from importlib.util import find_spec

    ray = find_spec("ray")
    assert ray is not None
    assert ray.origin is not None
    program = os.path.join(os.path.dirname(ray.origin), "_private", "workers", "setup_worker.py")
    os.execv(sys.executable, [sys.executable, program, *sys.argv[1:]])


if __name__ == "__main__":
    main()
