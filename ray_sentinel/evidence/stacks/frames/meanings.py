"""What a known frame means; the rows that say which frames are known are in ``known_*.py``.

``level`` says how much a meaning explains. The innermost frame of the highest level decides:

====  ======================================================================================
4     the interpreter's lock: whatever the code above it wanted, the thread waits for the GIL
3     a purpose: a collective, the device, input, a checkpoint, compilation
2     a reason: a lock, a queue, a child process, a socket, a sleep
1     a mechanism: a system call that could serve anything
====  ======================================================================================
"""

from __future__ import annotations

from typing import Literal

import msgspec

from ray_sentinel.model.stacks import Activity

Delegate = Literal["", "engine", "pool", "actor", "thread"]


class Meaning(msgspec.Struct, frozen=True, kw_only=True):
    """The meaning of a known frame."""

    activity: Activity
    label: str
    """What the thread does, for people; ``{op}`` is replaced by the operation's name."""
    level: int = 3
    waits: bool | None = False
    """The thread waits for other ranks there; None where the frame alone cannot tell."""
    delegates: Delegate = ""
    """What the thread waits for to do its work, all in the same process: a thread of the autograd
    engine, of a pool or of an actor, or some thread that cannot be told. Empty where it does the
    work itself."""


class FramePattern(msgspec.Struct, frozen=True):
    """Patterns and their meaning. ``file`` is searched for in the path, and makes the row apply to
    Python frames."""

    meaning: Meaning
    function: str
    file: str = ""
    operation: str = ""
    """The operation's name, where the function's own name does not contain it."""


COLLECTIVE = Meaning(activity="collective-wait", label="in {op}", waits=True)
JOINING = Meaning(activity="startup", label="waiting for the other ranks to join", waits=True)
CLOSING = Meaning(activity="collective-wait", label="closing the process group", waits=None)
COMMUNICATOR = Meaning(
    activity="collective-wait", label="setting up a communicator with the others", waits=True
)
DEVICE = Meaning(activity="device-wait", label="waiting for the device", waits=None)
LAUNCH = Meaning(
    activity="device-wait", label="launching a kernel (the queue may be full)", level=2, waits=None
)
# Machine code below it is not in the dump: an ``item()`` or a copy waits for the device there.
STEP = Meaning(
    activity="compute",
    label="in the optimizer's or gradients' code (the device may be waited for)",
    level=1,
    waits=None,
)
DRIVER = Meaning(activity="device-wait", label="in the device's driver", level=1, waits=None)
INPUT = Meaning(activity="input-wait", label="waiting for the next batch of data")
CHECKPOINT = Meaning(activity="checkpoint", label="in a checkpoint")
REMOTE = Meaning(activity="storage-wait", label="in remote storage")
COMPILE = Meaning(activity="compile", label="compiling")
CAPTURE = Meaning(activity="startup", label="capturing device graphs")
GIL = Meaning(activity="gil-wait", label="waiting for the GIL", level=4, waits=None)

MUTEX = Meaning(activity="lock-wait", label="waiting for a lock", level=1)
LOCK = Meaning(activity="lock-wait", label="waiting for a lock", level=2)
IMPORT_LOCK = Meaning(
    activity="lock-wait", label="waiting for another thread's import", level=2, delegates="thread"
)
BUILD_LOCK = Meaning(activity="lock-wait", label="waiting for a lock file")
QUEUE = Meaning(activity="lock-wait", label="waiting for a queue", level=2, delegates="thread")
EVENT = Meaning(
    activity="lock-wait", label="waiting for another thread's signal", level=2, delegates="thread"
)
JOIN = Meaning(
    activity="lock-wait", label="waiting for a thread to end", level=2, delegates="thread"
)
FUTURE = Meaning(
    activity="lock-wait", label="waiting for a future's result", level=2, delegates="pool"
)
CHILD = Meaning(activity="unknown", label="waiting for a child process", level=2)
BACKWARD = Meaning(
    activity="compute", label="in the backward pass", level=2, waits=None, delegates="engine"
)
SESSION = Meaning(
    activity="compute", label="in a TensorFlow step", level=2, waits=None, delegates="thread"
)
IDLE = Meaning(activity="idle", label="idle", level=2, waits=None, delegates="actor")
TASKLESS = Meaning(
    activity="idle",
    label="in no Ray task: its own has ended, or none was begun",
    level=2,
    waits=None,
    delegates="actor",
)
PROMPT = Meaning(
    activity="idle", label="at the interpreter's prompt: nobody has typed", level=2, waits=None
)
NO_REQUEST = Meaning(activity="idle", label="idle: no request is there", level=2, waits=None)
RAY = Meaning(activity="network-wait", label="waiting for Ray", level=2, waits=None)
NETWORK = Meaning(activity="network-wait", label="waiting for the network", level=2)
TYPING = Meaning(activity="input-wait", label="waiting for somebody to type")
SIGNAL = Meaning(activity="sleep", label="waiting for a signal", level=2)
FIFO = Meaning(activity="input-wait", label="waiting on a pipe or FIFO", level=2)
OPEN = Meaning(activity="input-wait", label="opening a file or FIFO", level=2)
READ = Meaning(activity="input-wait", label="reading from a file or pipe", level=2)
WRITE = Meaning(activity="storage-wait", label="writing to a file or pipe", level=2)
STORAGE = Meaning(activity="storage-wait", label="waiting for storage", level=2)
SLEEP = Meaning(activity="sleep", label="sleeping", level=2)
# The driver waits for running kernels before it reclaims memory: one of them may be a collective.
DEVICE_RELEASE = Meaning(activity="allocation", label="freeing device memory", level=2, waits=None)
ALLOCATION = Meaning(activity="allocation", label="allocating memory", level=2)
IMPORT = Meaning(activity="startup", label="importing a module", level=1)
STOPPED = Meaning(activity="unknown", label="stopped by a signal", level=3)
POLL = Meaning(activity="unknown", label="polling", level=1, waits=None)
FUTEX = Meaning(activity="lock-wait", label="waiting for a lock", level=1, waits=None)

OPERATIONS = (
    "all_?reduce|all_?gather|reduce_?scatter|all_?to_?allv?|broadcast|bcast|barrier|gather|scatter"
    "|reduce|send_?recv|send|recv"
)
"""Names of collectives and transfers, as they occur in the functions of all libraries."""
