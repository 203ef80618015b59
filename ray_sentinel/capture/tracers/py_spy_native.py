"""``py-spy dump --native``: Python and machine code in one stack. Stops the process meanwhile.

It shows the collective itself (``c10d::Work::wait``) below the Python call. It cannot read a
process that is stopped by a signal.
"""

from __future__ import annotations

import msgspec

from ray_sentinel.capture.environment import find_program
from ray_sentinel.capture.tracer import Traced
from ray_sentinel.capture.tracers.py_spy import MISSING, read_py_spy, run_py_spy
from ray_sentinel.model.identity import ProcessId


class PySpyNative:
    """Python and native stacks."""

    name = "py-spy-native"
    prefix = "pyspy-native"
    intrusive = True

    def available(self) -> str:
        """Empty where py-spy is there."""
        return "" if find_program("py-spy") else MISSING

    def trace(self, process: ProcessId, deadline: float) -> Traced:
        """All threads' stacks, with native frames."""
        done = run_py_spy(process, deadline, "--native")
        trace = msgspec.structs.replace(read_py_spy(process, done), tool="py-spy-native")
        return Traced(
            tool=self.name,
            trace=trace,
            raw=done.stdout,
            seconds=done.seconds,
            timed_out=done.timed_out,
        )


TRACER = PySpyNative()
