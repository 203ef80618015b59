"""Whether this process may read another one's memory, as py-spy and gdb do.

Opening ``/proc/<pid>/mem`` asks the kernel the same question as ``ptrace`` and
``process_vm_readv`` (``man 2 ptrace``, "Ptrace access mode checking": PTRACE_MODE_ATTACH, Yama and
other security modules included), and does nothing to the process.
"""

from __future__ import annotations

import os
from pathlib import Path


def may_trace(pid: int, proc: Path = Path("/proc")) -> bool | None:
    """Whether the kernel permits tracing the process; None if it has ended."""
    try:
        handle = os.open(proc / str(pid) / "mem", os.O_RDONLY | os.O_CLOEXEC)
    except PermissionError:
        return False
    except OSError:
        return None
    os.close(handle)
    return True
