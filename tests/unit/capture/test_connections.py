"""Which connections processes have, as the kernel tells."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator

import pytest

from ray_sentinel.capture import connections
from ray_sentinel.capture.connections import asking_sockets, connected, connections_of, unix_peers
from ray_sentinel.model.connections import Connection
from ray_sentinel.model.identity import ProcessId
from ray_sentinel.progress.proc.proc_stat import read_stat
from tests.support.waiting import eventually

SERVER = """
import socket, sys
open("/proc/self/comm", "w").write("ray::Engine")
server = socket.create_server(("127.0.0.1", 0))
print(server.getsockname()[1], flush=True)
ends = [server.accept()[0] for _ in range(2)]
for end in ends:
    end.recv(10)
sys.stdin.readline()
ends[0].send(b"answer")
sys.stdin.readline()
"""


def process_of(pid: int) -> ProcessId:
    stat = read_stat(pid)
    assert stat is not None
    return ProcessId("host1", pid, stat.start)


class Asked:
    """A server below a shell, and two connections to it. It has the name of a worker of Ray, as
    what such a worker forks has."""

    def __init__(self) -> None:
        # The shell stays: it has another command to run.
        self.shell = subprocess.Popen(
            ["sh", "-c", f"{sys.executable} -c '{SERVER}'; exit"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self.shell.stdout is not None
        self.port = int(self.shell.stdout.readline())
        address = ("127.0.0.1", self.port)
        self.ends = [socket.create_connection(address) for _ in range(2)]
        self.processes = [process_of(os.getpid()), process_of(self.shell.pid)]

    def go_on(self) -> None:
        assert self.shell.stdin is not None
        self.shell.stdin.write("\n")
        self.shell.stdin.flush()

    def ours(self) -> list[Connection]:
        """Over which we await an answer of the server."""
        ends = [f"127.0.0.1:{end.getsockname()[1]}" for end in self.ends]
        found = connections_of(self.processes)
        return [one for one in found if one.local in ends]

    def served(self) -> list[Connection]:
        """On which the server owes an answer."""
        found = connections_of(self.processes)
        return [one for one in found if one.process == self.processes[1] and one.remote]


@pytest.fixture
def asked() -> Iterator[Asked]:
    made = Asked()
    try:
        yield made
    finally:
        for end in made.ends:
            end.close()
        made.shell.communicate("\n\n")


def test_both_ends_with_what_was_asked_and_not_answered(asked: Asked) -> None:
    assert asked.ours() == asked.served() == [], "nothing was asked"
    begun = time.time()
    for end in asked.ends:
        end.send(b"request")
    both = eventually(lambda: len(found := asked.ours()) == 2 and found, "two answers are awaited")
    we, shell = asked.processes
    eventually(lambda: len(asked.served()) == 2, "two are owed")
    for one in both:
        assert (one.process, one.owner, one.serves) == (we, we, False)
        assert one.asked_at is not None
        assert one.asked_at == pytest.approx(begun, abs=5.0)
    served = asked.served()
    assert {(one.local, one.remote) for one in served} == {(o.remote, o.local) for o in both}
    assert all(one.serves and one.owner.pid != shell.pid for one in served), "the child has them"
    # This process may listen elsewhere, for another test.
    ports = (one for one in connections_of(asked.processes) if not one.remote)
    (port,) = (one for one in ports if one.process == shell)
    assert (port.local, port.serves) == (f"127.0.0.1:{asked.port}", True)
    asked.go_on()
    assert asked.ends[0].recv(10) == b"answer"
    eventually(lambda: len(asked.ours()) == len(asked.served()) == 1, "one is answered")


def test_a_process_with_another_start_is_another_one(asked: Asked) -> None:
    asked.ends[0].send(b"request")
    eventually(lambda: len(asked.ours()) == 1, "it is awaited")
    asked.processes[0] = ProcessId("host1", os.getpid(), 1)
    assert asked.ours() == []


HOLDS = [sys.executable, "-c", "import sys; sys.stdin.read()"]


@pytest.fixture
def child() -> Iterator[Callable[..., int]]:
    """Starts a child that has some sockets open, and gives its pid."""
    made: list[subprocess.Popen[bytes]] = []

    def start(*open_there: socket.socket) -> int:
        numbers = [one.fileno() for one in open_there]
        made.append(subprocess.Popen(HOLDS, stdin=subprocess.PIPE, pass_fds=numbers))
        return made[-1].pid

    yield start
    for one in made:
        one.communicate()


def test_who_has_the_other_end_of_a_unix_socket(child: Callable[..., int]) -> None:
    """Also where the far end was left open here; who has both, as a fork has, is none."""
    near, far = socket.socketpair()
    with near, far:
        other, forked, alone = child(far), child(near, far), child()
        assert connected(os.getpid(), [other, forked, alone], unix_peers()) == {other}
        assert connected(os.getpid(), [], unix_peers()) == set()
        assert connected(os.getpid(), [other], {}) == set()


@pytest.mark.parametrize("accepted", [True, False])
def test_who_is_to_answer_over_tcp(child: Callable[..., int], accepted: bool) -> None:
    server = socket.create_server(("127.0.0.1", 0))
    with server, socket.create_connection(server.getsockname()) as ours:
        theirs = server.accept()[0] if accepted else server
        serves = child(theirs)
        theirs.close()
        server.close()
        assert connected(os.getpid(), [serves], asking_sockets()) == set()
        ours.send(b"question")
        eventually(
            lambda: connected(os.getpid(), [serves], asking_sockets()) == {serves},
            "the kernel tells that an answer is due",
            10.0,
        )


def test_a_kernel_may_tell_of_one_kind_only(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused() -> Iterator[object]:
        raise FileNotFoundError

    monkeypatch.setattr(connections, "tcp_sockets", refused)
    near, far = socket.socketpair()
    with near, far:
        inode = os.fstat(near.fileno()).st_ino
        assert unix_peers()[inode] == os.fstat(far.fileno()).st_ino
        assert asking_sockets() == {}
