"""Deployment from within a training process: in the background, by a process of its own.

The caller's process is never connected to Ray for it: a rank would become a Ray driver, and what a
driver's job creates inherits the driver's runtime environment. One process per node and cluster
does it at a time; those that find it recently done do nothing.
"""

from __future__ import annotations

import fcntl
import json
import logging
import os
import sys
import tempfile
from pathlib import Path
from typing import Any

from ray_sentinel import process
from ray_sentinel.actors.deployment.cluster import candidates
from ray_sentinel.actors.deployment.environment import helper_variables
from ray_sentinel.actors.ray_api import address_of, client_of
from ray_sentinel.config import Config, safe_name, to_json
from ray_sentinel.errors import SentinelError
from ray_sentinel.progress.proc.proc_stat import read_stat
from ray_sentinel.trusted_path import claim_private_folder

log = logging.getLogger("ray_sentinel")

HELPER = "ray_sentinel.actors.deployment.helper"
HELPER_SECONDS = 90.0
"""Seconds that a helper has for its answer: it connects to Ray, and waits for nodes or agents."""


def own_address() -> str:
    """Address of the cluster that this process is in: that of Ray in this process, or else a guess.

    Empty if none is found.
    """
    ray: Any = sys.modules.get("ray")
    if ray is not None and getattr(ray, "is_initialized", lambda: False)():
        if (client := client_of(ray)) is not None:
            # Its cluster may have no node here, while another cluster has one. Otherwise
            # RAY_ADDRESS may know.
            return address_of(client)
        return str(ray.get_runtime_context().gcs_address)
    found = candidates()
    return found[0][0] if found else ""


def attempt(config: Config, address: str) -> tuple[bool, tuple[str, ...]]:
    """Deploy, unless another process on this node just has. Returns whether it is done, and what is
    wrong."""
    with NodeLock(address) as lock:
        if lock.done():
            return True, ()
        answer = ask_helper(["up"], address, to_json(config))
        if not answer.get("ok"):
            return False, (str(answer.get("error", "unknown")),)
        lock.note(int(answer.get("witness", 0)))
    return True, tuple(f"not watched: {line}" for line in answer.get("unwatched", ()))


def ask_helper(arguments: list[str], address: str, data: bytes = b"") -> dict[str, Any]:
    """Run ``deployment.helper`` with these arguments, and decode the JSON that it prints last."""
    try:
        ended = process.run(
            [sys.executable, "-m", HELPER, *arguments, "--address", address],
            deadline=HELPER_SECONDS,
            input=data,
            env=helper_variables(os.environ, sys.path),
            cwd="/",
        )
    except (SentinelError, OSError) as error:
        return {"ok": False, "error": f"the deploying process could not be started: {error}"}
    lines = ended.stdout.decode("utf-8", "replace").strip().splitlines()
    try:
        answer = json.loads(lines[-1])
        return answer if isinstance(answer, dict) else {"ok": False, "error": lines[-1]}
    except (IndexError, json.JSONDecodeError):
        return {"ok": False, "error": f"deployment: {ended.explain()}"}


class NodeLock:
    """One deployment at a time per node, user and cluster; waits for the one that is under way.

    The file names a witness: this node's agent. While that process lives, the cluster is watched.
    """

    def __init__(self, address: str) -> None:
        root = Path(tempfile.gettempdir()) / f"ray_sentinel-{os.getuid()}"
        self._path = root / f"deploy-{safe_name(address) or 'auto'}.lock"
        self._file = -1

    def __enter__(self) -> NodeLock:
        try:
            if problem := claim_private_folder(self._path.parent):
                log.warning("%s: %s: no deployment lock", self._path.parent, problem)
                return self
            flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
            self._file = os.open(self._path, flags, 0o600)
            fcntl.flock(self._file, fcntl.LOCK_EX)
        except OSError as error:
            # Without the lock it only costs more: the named actor is created once in any case.
            log.debug("no deployment lock: %s", error)
        return self

    def __exit__(self, *_: object) -> None:
        if self._file >= 0:
            os.close(self._file)
            self._file = -1

    def done(self) -> bool:
        """Whether another process has deployed already, and the witness lives."""
        if self._file < 0:
            return False
        words = os.pread(self._file, 64, 0).decode("ascii", "replace").split()
        if len(words) != 2 or not all(word.isdigit() for word in words):
            return False
        stat = read_stat(int(words[0]))
        return stat is not None and stat.start == int(words[1])

    def note(self, witness: int) -> None:
        """Store the witness for later processes; 0 if no agent could be seen from here."""
        if self._file >= 0:
            stat = read_stat(witness) if witness else None
            os.ftruncate(self._file, 0)
            os.pwrite(self._file, f"{witness} {stat.start}".encode() if stat else b"", 0)
