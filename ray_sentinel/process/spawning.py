"""Children in groups of their own, which die with us, also when we are killed with SIGKILL.

A child is started through a launcher (``setpriv --pdeathsig``, or a few lines of Python where
util-linux lacks it) that asks the kernel to kill it when its parent ends. The kernel means the
parent *thread* (``man 2 PR_SET_PDEATHSIG``), so all children are forked by one thread that lives as
long as the process. ``preexec_fn`` is not used: it forks a process full of foreign threads (Ray's,
gRPC's) and runs Python in the copy.
"""

from __future__ import annotations

import atexit
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from functools import lru_cache
from queue import SimpleQueue
from typing import IO, Any

from ray_sentinel import signals
from ray_sentinel.backoff import Backoff
from ray_sentinel.errors import MissingPartError

_PACKAGE_ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

KILL_GRACE = 1.0
"""Seconds to wait for a killed child to be gone; one in D state stays longer."""

POLL = Backoff(first=0.001, most=0.02)
"""Seconds between two looks whether a child has ended."""

_PYTHON_LAUNCHER = (
    "import ctypes,os,sys;"
    "ctypes.CDLL(None).prctl(1,9,0,0,0);"
    "os.getppid()==int(sys.argv[1]) or os._exit(1);"
    "os.execvp(sys.argv[2],sys.argv[2:])"
)

_STILL_OURS = '[ "$PPID" = "$0" ] && exec "$@"'
_NO_CORE = "ulimit -c 0; "
_PYTHON_NO_CORE = "import resource;resource.setrlimit(resource.RLIMIT_CORE,(0,0));"


class Spawner:
    """Forks children from one thread, so that the parent-death signal means this process."""

    def __init__(self) -> None:
        self._requests: SimpleQueue[tuple[Future[Any], Any, dict[str, Any]]] = SimpleQueue()
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._pid = 0

    def popen(self, argv: Sequence[str], **options: Any) -> subprocess.Popen[bytes]:
        """``subprocess.Popen`` on the spawning thread; raises what Popen raises."""
        with self._lock:
            # After a fork the thread does not exist in the child.
            if self._thread is None or self._pid != os.getpid():
                self._requests = SimpleQueue()
                self._pid = os.getpid()
                self._thread = threading.Thread(
                    target=self._serve, name="ray-sentinel-spawner", daemon=True
                )
                self._thread.start()
        future: Future[subprocess.Popen[bytes]] = Future()
        self._requests.put((future, argv, options))
        return future.result()

    def _serve(self) -> None:
        while True:
            future, argv, options = self._requests.get()
            try:
                future.set_result(subprocess.Popen(argv, **options))
            except (OSError, ValueError, subprocess.SubprocessError) as error:
                future.set_exception(error)


_spawner = Spawner()


@lru_cache(maxsize=1)
def _setpriv() -> str | None:
    path = shutil.which("setpriv")
    if path is None:
        return None
    probe = _spawner.popen(
        [path, "--pdeathsig", "KILL", "/bin/sh", "-c", "exit 0"],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        return path if probe.wait(timeout=5) == 0 else None
    except subprocess.TimeoutExpired:
        signals.send_group(probe, signal.SIGKILL)
        return None


def dying_with_us(
    argv: Sequence[str], env: Mapping[str, str] | None = None, *, core_dumps: bool = True
) -> list[str]:
    """``argv`` behind a launcher that has the kernel kill it when this process ends, and passes
    ``env`` on unchanged. Without ``core_dumps`` it leaves none if it crashes.

    If the parent ended before the launcher made its request, the kernel sends no signal any more:
    so the launcher then checks whether its parent is still this process, and otherwise does not
    start the program.
    """
    # A shell passes on only variables whose names could be its own.
    plain = all(
        name.isascii() and name.isidentifier() for name in (os.environ if env is None else env)
    )
    if plain and (setpriv := _setpriv()):
        mine = str(os.getpid())
        script = _STILL_OURS if core_dumps else _NO_CORE + _STILL_OURS
        return [setpriv, "--pdeathsig", "KILL", "/bin/sh", "-c", script, mine, *argv]
    script = _PYTHON_LAUNCHER if core_dumps else _PYTHON_NO_CORE + _PYTHON_LAUNCHER
    return [sys.executable, "-I", "-S", "-c", script, str(os.getpid()), *argv]


def spawn(
    argv: Sequence[str],
    *,
    stdin: int | IO[bytes] = subprocess.DEVNULL,
    stdout: int | IO[bytes] = subprocess.PIPE,
    stderr: int | IO[bytes] = subprocess.PIPE,
    env: Mapping[str, str] | None = None,
    cwd: str | os.PathLike[str] | None = None,
    death_signal: bool = True,
    outlives_us: bool = False,
    core_dumps: bool = True,
) -> subprocess.Popen[bytes]:
    """Start a long-lived child in its own session; it is killed when this process ends.

    ``death_signal=False`` is for a child that itself ends with its whole group when its stdin
    closes: the kernel's signal would reach the child alone, and before it could do so.
    ``outlives_us`` is for one that the next life of this process should find again. Without
    ``core_dumps`` a child that gets the death signal leaves none if it crashes. Raises
    MissingPartError if the program is not there, OSError if it cannot be started.
    """
    _reap_given_up()
    program = argv[0] if os.sep in argv[0] else shutil.which(argv[0])
    if program is None or not os.path.exists(program):
        raise MissingPartError(f"{argv[0]} is not installed, or not on PATH")
    command = [program, *argv[1:]]
    child = _spawner.popen(
        dying_with_us(command, env, core_dumps=core_dumps)
        if death_signal and not outlives_us
        else command,
        stdin=stdin,
        stdout=stdout,
        stderr=stderr,
        env=dict(env) if env is not None else None,
        cwd=cwd,
        start_new_session=True,
        close_fds=True,
        bufsize=0,
    )
    signals.note_child(child)
    if not outlives_us:
        _children[child.pid] = child
    return child


_children: dict[int, subprocess.Popen[bytes]] = {}
_given_up: dict[int, subprocess.Popen[bytes]] = {}
"""Children that ``end`` could not end, by pid: nobody else waits for them any more."""


def end(child: subprocess.Popen[bytes], *, grace: float = 0.0) -> bool:
    """End a child and its whole group: SIGTERM and ``grace`` seconds first, if any, then SIGKILL.

    Returns False if it still exists afterwards (D state): then nothing can end it.
    """
    if grace > 0:
        signals.send_group(child, signal.SIGTERM)
        if ends(child, grace):
            finish(child)
            return True
    signals.send_group(child, signal.SIGKILL)
    if ends(child, KILL_GRACE):
        finish(child)
        return True
    _given_up[child.pid] = child
    return False


def kill(child: subprocess.Popen[bytes]) -> None:
    """Send SIGKILL to a child's whole group without waiting; ``reap`` shows when it is gone."""
    signals.send_group(child, signal.SIGKILL)


def reap(child: subprocess.Popen[bytes]) -> int | None:
    """The exit status of a child that has ended, as in ``subprocess``; None while it exists."""
    status = child.poll()
    if status is not None:
        _children.pop(child.pid, None)
    return status


def finish(child: subprocess.Popen[bytes]) -> None:
    """After the end of a child: end what it left behind in its group, and reap it."""
    # First the group: once its leader is reaped, the number may belong to another.
    signals.send_group(child, signal.SIGKILL)
    child.poll()
    _children.pop(child.pid, None)


def _reap_given_up() -> None:
    """Reap the children that were given up: they end once the kernel lets them, and should not stay
    as zombies."""
    for pid, child in list(_given_up.items()):
        if reap(child) is not None:
            _given_up.pop(pid, None)


def ends(child: subprocess.Popen[bytes], seconds: float) -> bool:
    """Whether a child ends within ``seconds``. It is not reaped: see ``finish``."""
    end_at = time.monotonic() + seconds
    looks = 0
    while not signals.has_ended(child):
        left = end_at - time.monotonic()
        if left <= 0:
            return False
        looks += 1
        time.sleep(min(POLL.delay(looks), left))
    return True


@atexit.register
def end_all() -> None:
    """Send SIGKILL to the group of every remaining child, as at the end of this process."""
    for child in list(_children.values()):
        signals.send_group(child, signal.SIGKILL)


def python_module(name: str, *arguments: str) -> list[str]:
    """The command that runs a module as ``python -m`` does, with this process's module path.

    ``-m`` searches the current folder first, which may be ``/tmp`` or another user's: a
    ``msgspec.py`` in it would be executed.
    """
    path = [entry for entry in (*_without_script_first(), _PACKAGE_ROOT) if os.path.isabs(entry)]
    code = (
        f"import sys; sys.path[:] = {list(dict.fromkeys(path))!r}; import runpy; "
        f"runpy.run_module({name!r}, run_name='__main__', alter_sys=True)"
    )
    return [sys.executable, "-c", code, *arguments]


def _without_script_first() -> list[str]:
    """``sys.path`` with the folder of the script that we are called from at its end: what lies
    beside a training's script (a ``secrets.py``, a ``queue.py``) is not taken for Python's own."""
    script = getattr(sys.modules.get("__main__"), "__file__", None)
    if not script or not sys.path or sys.path[0] != os.path.dirname(os.path.abspath(script)):
        return sys.path
    return [*sys.path[1:], sys.path[0]]
