"""Ray's token authentication: Ray's clients offer a token only where ``RAY_AUTH_MODE`` says so.

``ray start`` of Ray 2.60 asks for tokens by itself where it finds one, and sets the variable
for its own processes alone. https://docs.ray.io/en/latest/ray-security/token-auth.html
"""

from __future__ import annotations

import os
from collections.abc import Mapping, MutableMapping
from pathlib import Path

from ray_sentinel.actors.raylets import raylets
from ray_sentinel.kernel_files import parse_environ
from ray_sentinel.progress.process_memory import memory_file

_MODE = "RAY_AUTH_MODE"


def adopt_mode(
    target: str, environ: MutableMapping[str, str] = os.environ, proc: Path = Path("/proc")
) -> None:
    """Do as the nodes of ``target`` (host:port) on this machine, where ``environ`` does not say.

    Without effect once Ray was imported.
    """
    if _MODE in environ:
        return
    for pid, address in raylets(proc).items():
        if address != target:
            continue
        # Empty where it is another user's, or has just ended.
        told = parse_environ(memory_file(pid, "environ", proc) or b"", "replace")
        if mode := told.get(_MODE, ""):
            environ[_MODE] = mode
            return


def remedy(environ: Mapping[str, str] = os.environ) -> str:
    """What to do where a cluster refuses those that offer no token, or another one."""
    tokens = "RAY_AUTH_TOKEN, RAY_AUTH_TOKEN_PATH or ~/.ray/auth_token"
    if environ.get(_MODE, "").lower() == "token":
        return f"the token in {tokens} must be the cluster's"
    return f"if it asks for a token, set {_MODE}=token, with the cluster's token in {tokens}"
