"""``cuda-gdb``: the kernels on the devices and the host threads' stacks. Stops the process.

It must not inherit CUDA_VISIBLE_DEVICES: an actor without GPUs has it empty, and a cuda-gdb that
sees no device lists no kernels.
"""

from __future__ import annotations

import glob
import os
import time

from ray_sentinel import regex as re
from ray_sentinel.capture.environment import find_program
from ray_sentinel.capture.tracer import Traced
from ray_sentinel.capture.tracers.gdb import BACKTRACES, gdb_command, gdb_file, read_gdb, run_gdb
from ray_sentinel.model.identity import ProcessId

# A cuda-gdb that shares /usr/share/gdb with a newer gdb cannot use its Python unwinders; without
# its data directory it does without them.
_FOREIGN_DATA = b"should return gdb.UnwindInfo"
_NO_DATA = ("-data-directory", "/nonexistent")
DETACH_SECONDS = 7.0
"""Seconds to attach, and as many to detach, once the deadline has come: attaching took 8 to 14 s on
an H200, detaching 1 s, and who kills it in between does harm. Twice as many must be less than the
coordinator waits for a node beyond the time of its tools (``GATHER_SECONDS``), or all that the node
has captured is lost."""


class CudaGdb:
    """Device kernels and native stacks."""

    name = "cuda-gdb"
    prefix = "cudagdb"
    intrusive = True

    def available(self) -> str:
        """Empty where cuda-gdb is there."""
        if find_cuda_gdb():
            return ""
        return (
            "cuda-gdb is not on this node: it is part of the CUDA toolkit "
            "(looked on PATH, in CUDA_HOME and in /usr/local/cuda*/bin)"
        )

    def trace(self, process: ProcessId, deadline: float) -> Traced:
        """``info cuda kernels`` and backtraces of all host threads."""
        started = time.monotonic()
        program = find_cuda_gdb() or "cuda-gdb"
        commands = ("info cuda kernels", *BACKTRACES)
        argv = gdb_command(program, process)
        done = run_gdb(argv, commands, deadline, DETACH_SECONDS)
        if _FOREIGN_DATA in done.stdout + done.stderr:
            left = started + deadline - time.monotonic()
            argv[1:1] = _NO_DATA
            if left > 0.1:
                done = run_gdb(argv, commands, left, DETACH_SECONDS)
        return Traced(
            tool=self.name,
            trace=read_gdb(process, done, "cudagdb"),
            raw=gdb_file(done),
            seconds=time.monotonic() - started,
            timed_out=done.timed_out,
        )


def find_cuda_gdb() -> str | None:
    """The newest cuda-gdb on this node."""
    if on_path := find_program("cuda-gdb"):
        return on_path
    places = [
        os.path.join(os.environ[name], "bin/cuda-gdb")
        for name in ("CUDA_HOME", "CUDA_PATH")
        if os.environ.get(name)
    ]
    places += sorted(glob.glob("/usr/local/cuda*/bin/cuda-gdb"), key=_version, reverse=True)
    places += ["/usr/lib/nvidia-cuda-toolkit/bin/cuda-gdb", "/opt/cuda/bin/cuda-gdb"]
    return next((place for place in places if os.access(place, os.X_OK)), None)


def _version(path: str) -> tuple[int, ...]:
    return tuple(int(number) for number in re.findall(r"\d+", path))


TRACER = CudaGdb()
