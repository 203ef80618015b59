"""A worker of the tests with processes, ports and shared folders of its own, as in a container.

The agents under test watch every rank that they find on their host, whoever started it: ranks,
clusters and ports of one test must be out of another's sight before both may run at a time.

Run as a program, under ``unshare``, it is the first process of such a container: it ends what it
was given as soon as the worker ends, and collects orphans, which would else stay as zombies.
"""

from __future__ import annotations

import fcntl
import os
import shlex
import shutil
import socket
import struct
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

SPENT = "TESTS_PROCESSOR_TIME"
"""Variable that names the file where the kernel counts what all processes of the container spend,
in nanoseconds; unset where it counts nothing."""
BEHIND = "--behind"
"""First argument where the worker gets what other processes leave of the processors."""
LOWER = 5
"""By so much its niceness is higher: a third of an equal share, which ends within the tests'
deadlines also where something else keeps all processors busy."""
LAST_LINES = 30
"""Lines of each log that are told of a worker that was lost."""
CPUACCT = Path("/sys/fs/cgroup/cpuacct")
BOUND = ("setpriv", "--pdeathsig", "KILL")
"""Whoever ends the tests by a signal ends their containers with them."""
UNSHARE = (*BOUND, "unshare", "--mount-proc", "--pid", "--fork", "--kill-child", "--net", "--ipc")
SIOCSIFFLAGS, IFF_UP = 0x8914, 0x1
TUNSETIFF, IFF_TAP, IFF_NO_PI = 0x400454CA, 0x2, 0x1000
TEMP = Path(tempfile.gettempdir())
FOLDERS = (Path("/tmp/ray"), TEMP / f"ray_sentinel-{os.getuid()}")
"""Named alike by all processes of a user: Ray's sessions, and what ray_sentinel keeps."""


def python(*more: str) -> str | None:
    """The command line that is python in a container of its own; ``None`` where the machine or the
    user's rights do not allow one. ``more`` may be ``BEHIND``."""
    if os.getuid() != 0 or not all(map(shutil.which, ("setpriv", "unshare"))):
        return None
    command = [*UNSHARE, sys.executable, __file__, *more]
    tried = subprocess.run([*command, "-c", ""], capture_output=True, timeout=60, check=False)
    return None if tried.returncode else shlex.join(command)


def main() -> int:
    """In the new container: prepare it, run python in it, and stay until that has ended."""
    arguments = sys.argv[1:]
    if arguments[0] == BEHIND:
        del arguments[0]
        _step_back()
    subprocess.run(["mount", "-t", "tmpfs", "tmpfs", "/dev/shm"], check=True)
    with _network(), tempfile.TemporaryDirectory(prefix="apart-") as own:
        for shared in FOLDERS:
            shared.mkdir(parents=True, exist_ok=True)
            private = Path(own) / shared.name
            private.mkdir()
            subprocess.run(["mount", "--bind", private, shared], check=True)
        environ = {**os.environ, **_counted()}
        worker = subprocess.Popen([sys.executable, *arguments], env=environ).pid
        if status := _until_ended(worker):
            _tell(worker, status)
        return status


def _step_back() -> None:
    """Others come first. Linux may share processors out among sessions, and only within one of them
    by niceness: so this becomes a session of its own, which has a niceness, too."""
    os.setsid()
    os.nice(LOWER)
    with suppress(OSError):  # the kernel does not share so
        Path("/proc/self/autogroup").write_text(str(LOWER))


def _counted() -> dict[str, str]:
    """From now on what is spent here is counted in a group of its own; see ``SPENT``."""
    try:
        for left in CPUACCT.glob("tests-*"):
            with suppress(OSError):  # another stream's
                left.rmdir()
        group = Path(tempfile.mkdtemp(prefix="tests-", dir=CPUACCT))
        (group / "cgroup.procs").write_text("0")
    except OSError:
        return {}
    return {SPENT: str(group / "cpuacct.usage")}


@contextmanager
def _network() -> Iterator[None]:
    """The loopback interface, and a card that leads nowhere: what is read of cards is tried too."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        fcntl.ioctl(any_socket, SIOCSIFFLAGS, struct.pack("16sh", b"lo", IFF_UP))
    with open("/dev/net/tun", "r+b", buffering=0) as card:
        fcntl.ioctl(card, TUNSETIFF, struct.pack("16sh22x", b"eth0", IFF_TAP | IFF_NO_PI))
        yield


def _until_ended(worker: int) -> int:
    while True:
        pid, status = os.wait()
        if pid == worker:
            return os.waitstatus_to_exitcode(status) & 0xFF


def _tell(worker: int, status: int) -> None:
    """How the worker ended, and the last that Ray's library in it has logged: a driver whose node
    is lost ends without a word of Python's."""
    print(f"the worker ended with status {status}", file=sys.stderr)
    for log in sorted(Path("/tmp/ray").glob(f"session_2*/logs/python-core-driver-*_{worker}.log")):
        with suppress(OSError):
            last = log.read_text(errors="replace").splitlines()[-LAST_LINES:]
            print(log.name, *last, sep="\n", file=sys.stderr)


if __name__ == "__main__":
    sys.exit(main())
