"""The logs of a cluster's other nodes, through Ray's own log API, copied into a folder here.

Ray's dashboard asks the agent of each node for the files (``ray.util.state``, the endpoints
``/api/v0/logs``). It is asked in a process of its own, this module run as a program: importing Ray
takes seconds, and a request of that API has no time limit. The task comes by stdin, the answer goes
to stdout, both as MessagePack; what was not read is named, one line a node.
"""

from __future__ import annotations

import os
import socket
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from typing import Any

import msgspec

from ray_sentinel import process
from ray_sentinel import regex as re
from ray_sentinel.actors.coordinator.ray.store import RayStore
from ray_sentinel.actors.deployment import cluster
from ray_sentinel.actors.raylets import trusted_raylets
from ray_sentinel.errors import UnreachableError
from ray_sentinel.progress.proc.process_memory import memory_file
from ray_sentinel.text import one_line

SECONDS = 30.0
"""Seconds for all nodes together."""
TAIL_LINES = 20_000
"""Most lines that are read of each file: its last ones."""
FILE_BYTES, ALL_BYTES = 16 << 20, 256 << 20
NODE_FILES, MOST_NODES = 400, 512
_AT_ONCE = 8
"""How many nodes are read simultaneously."""
_LIST_SECONDS = 10
_START_SECONDS = 15.0
"""Additional seconds for the helper process to start: it imports Ray first."""
_WANTED = re.compile(
    r"(?:.*/)?(?:worker-[0-9a-f]+-.*\.(?:out|err)|job-driver-.*\.log|ray-train-.*\.log"
    r"|raylet(?:\.\d+)?\.(?:out|err)|gcs_server(?:\.\d+)?\.(?:out|err))(?:\.\d+)?"
)
_WORKER = "worker-"


class LogRequest(msgspec.Struct, frozen=True):
    """What the helper has to fetch."""

    address: str
    """The address of the control store."""
    node: str
    """A node's address, host or name, or the beginning of its id; empty for all nodes but this one.
    """
    folder: str
    """The folder for the files, with a subfolder for each node, named after its address."""
    known: list[str]
    """Names of the workers' files in this machine's session; a node that has one of them is this
    one."""
    seconds: float
    session: str = ""
    """This machine's session; a node that keeps its files in it is also this one."""


class NodeLogs(msgspec.Struct):
    """What was read from one node."""

    address: str
    host: str = ""
    here: bool = False
    """Whether the node writes into this machine's session; its files are then read where they are.
    """
    files: int = 0
    problem: str = ""


class Fetched(msgspec.Struct):
    """Everything that was read, and one line for each node that was not, or not in full."""

    nodes: list[NodeLogs] = []
    problems: list[str] = []


@contextmanager
def fetched(
    session: Path | None, node: str = "", address: str = ""
) -> Iterator[tuple[Path, Fetched]]:
    """(folder, its content): the logs of the nodes that ``node`` names, or of all but this one.

    The folder is private, and removed afterwards. Nothing is raised for a cluster that cannot be
    reached: ``problems`` says so.
    """
    with tempfile.TemporaryDirectory(prefix="ray_sentinel_logs_") as folder:
        yield Path(folder), _fetch(session, node, address, Path(folder))


def _fetch(session: Path | None, node: str, address: str, folder: Path) -> Fetched:
    target = address_of(session, address)
    if not target:
        return Fetched(problems=[_unread("its cluster's address is not known (--address)")])
    if problem := cluster.answers(target.removeprefix("ray://")):
        return Fetched(problems=[_unread(f"Ray's control store at {target}: {problem}")])
    here = str(session.resolve()) if session is not None else ""
    task = LogRequest(target, node, str(folder), _workers(session), SECONDS, here)
    command = process.python_module("ray_sentinel.actors.node_logs")
    done = process.run(
        command, deadline=SECONDS + _START_SECONDS, input=msgspec.msgpack.encode(task)
    )
    try:
        return msgspec.msgpack.decode(done.stdout, type=Fetched)
    except msgspec.DecodeError:
        return Fetched(problems=[_unread(done.explain())])


def _unread(why: str) -> str:
    return f"the other nodes' logs were not read: {why}; run this on each of them"


def address_of(session: Path | None, given: str = "", proc: Path = Path("/proc")) -> str:
    """The control store of the cluster that ``session`` belongs to; empty if unknown.

    An arbitrary cluster of this machine will not do: its logs would be another job's.
    """
    best, where = next(iter(cluster.candidates(given)), ("", ""))
    if given or session is None or where == "RAY_ADDRESS":
        return best
    real = session.resolve()
    for pid, address in trusted_raylets(proc).items():
        arguments = memory_file(pid, "cmdline", proc) or b""
        if address and os.fsencode(real) in arguments:
            return address
    return cluster.current_cluster(real.parent)


def _workers(session: Path | None) -> list[str]:
    if session is None:
        return []
    try:
        names = [entry.name for entry in os.scandir(session / "logs")]
    except OSError:
        return []
    return [name for name in names if name.startswith(_WORKER)]


class _Reader:
    """Reads several nodes simultaneously until the time is over."""

    def __init__(self, task: LogRequest, nodes: Sequence[Any]) -> None:
        self.task = task
        self.due = time.monotonic() + task.seconds
        self.known = frozenset(task.known)
        self.left = [
            (
                node,
                NodeLogs(
                    node.node_manager_address,
                    node.node_manager_hostname,
                    problem=f"not read within {task.seconds:g} s",
                ),
            )
            for node in nodes
        ]
        self.told = [told for _, told in self.left]
        self._bytes = 0
        self._lock = threading.Lock()

    def run(self) -> None:
        """Returns at the deadline at the latest; what hangs then is left behind."""
        threads = [threading.Thread(target=self._next_nodes, daemon=True) for _ in range(_AT_ONCE)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(max(0.0, self.due - time.monotonic()))

    def _next_nodes(self) -> None:
        while True:
            with self._lock:
                if not self.left:
                    return
                node, told = self.left.pop(0)
            try:
                told.problem = self._read(node, told)
            except _failures() as error:
                told.problem = one_line(f"{type(error).__name__}: {error}", 300)

    def _read(self, node: Any, told: NodeLogs) -> str:
        from ray.util.state import list_logs

        if writes_into(node, self.task.session):
            told.here = True
            return ""
        listed = list_logs(
            address=self.task.address, node_id=node.node_id.hex(), timeout=_LIST_SECONDS
        )
        names = chosen(name for group in listed.values() for name in group)
        told.here = any(PurePosixPath(name).name in self.known for name in names)
        if told.here:
            return ""
        if not names:
            return "Ray lists no logs of its workers"
        cut = 0
        for name in names[:NODE_FILES]:
            if time.monotonic() > self.due or self._bytes > ALL_BYTES:
                why = "the time was over" if time.monotonic() > self.due else "they are too large"
                return f"{told.files} of {len(names)} files were read: {why}"
            cut += self._copy(node, name, Path(self.task.folder, told.address))
            told.files += 1
            told.problem = f"{told.files} of {len(names)} files were read: the time was over"
        more = len(names) - NODE_FILES
        if more > 0:
            return f"{NODE_FILES} of {len(names)} files were read"
        return f"only the last {TAIL_LINES} lines of {cut} files were read" if cut else ""

    def _copy(self, node: Any, name: str, folder: Path) -> bool:
        """Copy a file. Returns whether its beginning was left out."""
        from ray.util.state import get_log

        chunks = get_log(
            address=self.task.address, node_id=node.node_id.hex(), filename=name,
            tail=TAIL_LINES, encoding=None, timeout=_LIST_SECONDS,
        )  # fmt: skip
        target = folder / name
        target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        lines = size = 0
        with target.open("wb") as file:
            for chunk in chunks:
                data = chunk.encode() if isinstance(chunk, str) else chunk
                file.write(data[: FILE_BYTES - size])
                lines, size = lines + data.count(b"\n"), size + len(data)
                with self._lock:
                    self._bytes += len(data)
                if size >= FILE_BYTES or time.monotonic() > self.due:
                    return True
        return lines >= TAIL_LINES


def chosen(names: Iterable[str]) -> list[str]:
    """Files of workers, drivers, raylet and control store, standard errors first; names that lead
    out of the folder are left out."""
    safe = [
        name
        for name in set(names)
        if _WANTED.fullmatch(name)
        and not name.startswith("/")
        and ".." not in PurePosixPath(name).parts
    ]
    return sorted(
        safe,
        key=lambda name: (not name.split("/")[-1].startswith(_WORKER), ".err" not in name, name),
    )


def writes_into(node: Any, session: str) -> bool:
    """Whether the node is on this machine and keeps its logs there. Ray before 2.60 does not say
    where; then its workers' files show it."""
    if not session or node.node_manager_hostname != socket.gethostname():
        return False
    temp, own = getattr(node, "temp_dir", ""), getattr(node, "session_dir", "")
    return session in (own, os.path.join(temp, os.path.basename(session)) if temp else "")


def is_meant(node: Any, wanted: str) -> bool:
    """Whether ``wanted`` (empty: any node) is the node's address, host, name or the beginning of
    its id."""
    if not wanted:
        return True
    own = (node.node_manager_address, node.node_manager_hostname, node.node_name)
    return wanted in own or (len(wanted) >= 4 and node.node_id.hex().startswith(wanted))


def fetch(task: LogRequest) -> Fetched:
    """Ask Ray; in the helper."""
    with RayStore(task.address) as store:
        every = store.ask("NodeInfo", "GetAllNodeInfo").node_info_list
    alive = [node for node in every if node.state == 0]
    meant = [node for node in alive if is_meant(node, task.node)][:MOST_NODES]
    if task.node and not meant:
        by_name = _resolved(task.node)
        meant = [node for node in alive if node.node_manager_address in by_name]
    gone = [node for node in every if node.state != 0 and is_meant(node, task.node)]
    lost = [f"node {node.node_manager_address}: it is gone, and its logs with it" for node in gone]
    if task.node and not meant:
        there = ", ".join(sorted({node.node_manager_address for node in alive})[:20])
        return Fetched(problems=lost or [f"no node is called {task.node}; there are: {there}"])
    reader = _Reader(task, meant)
    reader.run()
    told = [msgspec.structs.replace(node) for node in reader.told]
    problems = [_of_node(node) for node in told if node.problem]
    return Fetched(nodes=told, problems=[*problems, *([] if task.node else lost)])


def _failures() -> tuple[type[Exception], ...]:
    """The exceptions that Ray's clients raise if something does not answer, or answers
    strangely."""
    try:
        from ray.exceptions import RayError
    except ImportError:
        return (ImportError,)
    odd = (ValueError, LookupError, TypeError, AttributeError, ImportError, AssertionError)
    return (UnreachableError, RayError, OSError, RuntimeError, *odd)


def _of_node(node: NodeLogs) -> str:
    who = f"{node.address} ({node.host})" if node.host else node.address
    return f"node {who}: {node.problem}; run this there for all of it"


def _resolved(name: str) -> set[str]:
    try:
        return {str(found[4][0]) for found in socket.getaddrinfo(name, None)}
    except OSError:
        return set()


def main(leave: Callable[[int], Any] = os._exit) -> None:
    """The helper: threads that hang in a request are left behind by ``leave``."""
    task = msgspec.msgpack.decode(sys.stdin.buffer.read(), type=LogRequest)
    cluster.adopt_mode(task.address)
    try:
        answer = fetch(task)
    except _failures() as error:
        answer = Fetched(problems=[_unread(one_line(f"{type(error).__name__}: {error}", 300))])
    sys.stdout.buffer.write(msgspec.msgpack.encode(answer))
    sys.stdout.buffer.flush()
    leave(0)


if __name__ == "__main__":
    main()
