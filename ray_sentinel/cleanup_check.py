"""Whether what an attempt held is free again: processes, ports, GPUs, ranks on other nodes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import psutil

from ray_sentinel import nvidia_smi
from ray_sentinel.errors import SentinelError
from ray_sentinel.job_name import jobs_on
from ray_sentinel.progress.discovery.descendants import descendants
from ray_sentinel.supervise.run_folder import State
from ray_sentinel.text import port_number
from ray_sentinel.watched_page import WatchedPage

# Which ports a launcher will listen on, and whether somebody listens there still.

_OPTIONS = ("--master-port", "--master_port", "--rdzv-endpoint", "--rdzv_endpoint")
_VARIABLES = ("MASTER_PORT", "PET_MASTER_PORT")


def ports_of(argv: Sequence[str], environ: Mapping[str, str]) -> tuple[int, ...]:
    """The ports in torchrun's options, else in the environment; a rendezvous on another host is
    left out.

    >>> ports_of(["torchrun", "--master-port=29501", "t.py"], {"MASTER_PORT": "1"})
    (29501,)
    """
    found = []
    words = list(argv)
    for at, word in enumerate(words):
        name, given, value = word.partition("=")
        if name not in _OPTIONS:
            continue
        value = value if given else "".join(words[at + 1 : at + 2])
        host, _, port = value.rpartition(":")
        if not host or host in ("localhost", "127.0.0.1", "0.0.0.0", "[::1]"):
            found.append(port)
    found = found or [environ[name] for name in _VARIABLES if environ.get(name)]
    return tuple(number for one in found if (number := port_number(one)))


def listened_on(ports: Sequence[int]) -> str:
    """One sentence about the first port that is held; empty if all are free."""
    for entry in psutil.net_connections("tcp") if ports else ():
        if entry.status == psutil.CONN_LISTEN and entry.laddr and entry.laddr[1] in ports:
            who = f"pid {entry.pid}" if entry.pid else "a process that is not visible here"
            return f"port {entry.laddr[1]} is still held by {who}"
    return ""


SLACK_BYTES = 1 << 30
"""Bytes that a GPU may have in use beyond those before the run: drivers keep a little."""


class CleanupCheck:
    """Remembers what was in use before the run: that is somebody else's."""

    def __init__(
        self,
        argv: Sequence[str],
        environ: Mapping[str, str],
        job_name: Callable[[], str],
        page: WatchedPage | None,
    ) -> None:
        """``job_name`` gives what the coordinator, whose page it is, calls the job."""
        self._job_name, self._page = job_name, page
        wanted = ports_of(argv, environ)
        # A port that somebody held before the run will not become free by waiting.
        self._ports = () if listened_on(wanted) else wanted
        self._before = _used()

    def problem(self, state: State) -> str:
        """One sentence about what is still held; empty if all is free."""
        alive = descendants(state.keeper)
        if alive:
            return f"pid {alive[0].pid} ({alive[0].command}) of the old attempt still runs"
        return listened_on(self._ports) or self._gpus() or self._ranks()

    def _gpus(self) -> str:
        for name, used in _used().items():
            more = used - self._before.get(name, used)
            if more > SLACK_BYTES:
                return f"{name} has {more / (1 << 30):.1f} GiB more in use than before the run"
        return ""

    def _ranks(self) -> str:
        name = self._job_name()
        for job in jobs_on(self._page):
            if job.job != name or job.ended:
                continue
            for rank in job.ranks:
                if rank.state not in ("exited", "dead", "ended"):
                    where = f"{rank.host} (pid {rank.pid})"
                    return f"rank {rank.rank} of the old attempt still runs on {where}"
        return ""


def _used() -> dict[str, int]:
    """GPU → bytes in use; empty if there are none, or if the driver does not answer."""
    try:
        answer = nvidia_smi.ask()
    except SentinelError:
        return {}
    return {
        gpu.label: gpu.state.memory_used_bytes
        for gpu in (answer.gpus if answer else ())
        if gpu.state.memory_used_bytes is not None
    }
