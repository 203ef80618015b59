"""The runtime environments that this node's Ray builds, from Ray's own agent for them, and from its
processes and logs.

That agent downloads on the thread that also answers requests: while it downloads it answers nobody.
Then its log shows what it builds. A build is moving as long as any of its threads gets onto a CPU.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import msgspec

from ray_sentinel.actors.ray_api import session_logs
from ray_sentinel.bounded import within
from ray_sentinel.capture.states import read_switches
from ray_sentinel.collect.descent import below
from ray_sentinel.errors import UnreachableError
from ray_sentinel.evidence.node.runtime_env import described, last_word, open_builds
from ray_sentinel.http.client import get
from ray_sentinel.model.runtime_env import EnvironmentBuild, NodeEnvironments, environment_key
from ray_sentinel.progress.proc.proc_stat import all_stats, task_ids
from ray_sentinel.text import one_line

ANSWER_SECONDS = 1.5
"""Seconds that the runtime environment agent has to answer; where it answers at all, it takes
milliseconds."""
FILE_SECONDS = 1.0
"""Seconds that the disk has to give the agent's logs."""
MOST_BYTES = 4 << 20
"""Most bytes of the agent's answer."""
MOST_ENVIRONMENTS = 1000
MOST_LOG = 1 << 20
"""Most bytes that are read from the end of a log."""
MOST_THREADS = 4096
"""Most threads of building processes that are looked at."""
_COMMAND = "ray::RuntimeEnv"
"""The beginning of the agent's command name, "ray::RuntimeEnvAgent", as the kernel cuts it off."""
_AGENT_LOG = "runtime_env_agent.log"
_BUILD_LOGS = "runtime_env_setup-*.log"


class RuntimeEnvAgentAddress(msgspec.Struct, frozen=True, kw_only=True):
    """The address of Ray's agent for runtime environments."""

    url: str
    headers: Mapping[str, str] = {}


class RuntimeEnvironments:
    """Looks on request. Blocks for some seconds at most; any thread may call."""

    def __init__(
        self,
        host: str,
        raylet: int,
        address: Callable[[], RuntimeEnvAgentAddress | None],
        logs: Callable[[], Path | None] = session_logs,
    ) -> None:
        """``raylet`` is the pid of the node's raylet, ``logs`` the folder of its session's logs."""
        self._host, self._raylet = host, raylet
        self._address, self._logs = address, logs

    def poll(self) -> NodeEnvironments:
        """What is being built now. What cannot be determined is left out."""
        told, answers, problem = self._asked()
        begun, line = self._logged()
        if told is None and not answers:
            told = list(begun), {}
        building, made = told or ([], {})
        return NodeEnvironments(
            host=self._host,
            answers=answers,
            building=tuple(
                EnvironmentBuild(key=key, what=described(text), since=begun.get(text))
                for text in building
                if (key := environment_key(text))
            ),
            made=made,
            line=line if building or not answers else "",
            moves=self._moves(answers) if building or not answers else None,
            problem=problem,
        )

    def _asked(self) -> tuple[tuple[list[str], dict[str, float]] | None, bool, str]:
        """The agent's answer, whether it answers, and what is wrong."""
        from google.protobuf.message import DecodeError  # type: ignore[import-untyped]
        from ray.core.generated import runtime_env_agent_pb2

        address = self._address()
        if address is None:
            return None, True, "the port of its agent for runtime environments is not known"
        request = runtime_env_agent_pb2.GetRuntimeEnvsInfoRequest(limit=MOST_ENVIRONMENTS)
        ask = partial(
            get,
            address.url,
            seconds=2 * ANSWER_SECONDS,
            most_bytes=MOST_BYTES,
            data=request.SerializeToString(),
            headers={"Content-Type": "application/octet-stream", **address.headers},
        )
        try:
            data = within(ANSWER_SECONDS, ask)
            return environments_of(data), True, ""
        except TimeoutError:
            return None, False, ""
        except (UnreachableError, DecodeError) as error:
            return None, True, one_line(str(error))

    def _logged(self) -> tuple[dict[str, float | None], str]:
        """When each build began, by Ray's text of the environment, and the last line of the newest
        log of a build."""
        try:
            return within(FILE_SECONDS, partial(_read_logs, self._logs()))
        except (OSError, ValueError, OverflowError):
            return {}, ""  # it hangs, it has ended, or its times are invalid

    def _moves(self, answers: bool) -> int | None:
        stats = all_stats()
        agents = [
            stat.pid
            for stat in stats.values()
            if stat.parent == self._raylet and stat.command.startswith(_COMMAND)
        ]
        if len(agents) != 1:
            return None
        if not answers:
            return read_switches(agents[0], agents[0])
        # Threads of its own build too, beside others that are never at rest.
        return _switches([pid for pid, _ in below(agents[0], stats)])


def environments_of(data: bytes) -> tuple[list[str], dict[str, float]]:
    """The environments that are being built, in Ray's text, and by key the seconds that the
    finished ones took, from a ``GetRuntimeEnvsInfoReply``. Raises DecodeError."""
    from ray.core.generated import runtime_env_agent_pb2

    reply: Any = runtime_env_agent_pb2.GetRuntimeEnvsInfoReply.FromString(data)
    building, made = [], {}
    for state in reply.runtime_env_states[:MOST_ENVIRONMENTS]:
        key = environment_key(state.runtime_env)
        if not key:
            continue
        if state.HasField("success"):
            if state.success:
                made[key] = max(0.0, state.creation_time_ms / 1000)
        elif state.ref_cnt > 0:
            building.append(state.runtime_env)
    return building, made


def _read_logs(folder: Path | None) -> tuple[dict[str, float | None], str]:
    if folder is None:
        return {}, ""
    begun = {
        text: at.astimezone().timestamp() if at is not None else None
        for text, at in open_builds(_end_of(folder / _AGENT_LOG)).items()
    }
    logs = sorted(folder.glob(_BUILD_LOGS), key=lambda path: path.stat().st_mtime)
    return begun, last_word(_end_of(logs[-1])) if logs else ""


def _end_of(path: Path) -> str:
    try:
        with open(path, "rb") as file:
            file.seek(max(0, os.fstat(file.fileno()).st_size - MOST_LOG))
            return file.read(MOST_LOG).decode("utf-8", "replace")
    except FileNotFoundError:
        return ""


def _switches(pids: list[int]) -> int | None:
    """A number that changes when any thread of these processes is scheduled, or other threads take
    their place; None if there are none."""
    total = looked = 0
    for pid in sorted(pids):
        for tid in task_ids(pid)[: MOST_THREADS - looked]:
            looked += 1
            total += (read_switches(pid, tid) or 0) + (tid << 32)
    return total % (1 << 62) if looked else None
