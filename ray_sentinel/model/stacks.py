"""Stacks, whichever tool took them."""

from __future__ import annotations

from typing import Literal

import msgspec

from ray_sentinel.model.identity import ProcessId, RankId

Tool = Literal["py-spy", "py-spy-native", "gdb", "cuda-gdb", "kernel", "faulthandler", "companion"]


class Frame(msgspec.Struct, frozen=True):
    """One call. ``file`` is a path or a shared object; ``line`` is 0 when unknown."""

    function: str
    file: str = ""
    line: int = 0
    native: bool = False


class ThreadStack(msgspec.Struct, frozen=True, kw_only=True):
    """One thread; ``frames`` innermost first."""

    tid: int | None = None
    name: str = ""
    frames: tuple[Frame, ...] = ()
    main: bool = False
    active: bool | None = None
    """Whether it was running according to the tool; None where the tool does not say."""
    holds_gil: bool | None = None
    state: str = ""
    """Its scheduler state as one letter (R, S, D, T, t, Z), where the tool says it."""


class GpuKernel(msgspec.Struct, frozen=True, kw_only=True):
    """A kernel on a device, from cuda-gdb's ``info cuda kernels``."""

    name: str
    device: int | None = None
    grid: str = ""
    block: str = ""
    sm: str = ""


class StackTrace(msgspec.Struct, frozen=True, kw_only=True):
    """All threads of one process at one moment."""

    process: ProcessId
    tool: Tool
    at: float
    threads: tuple[ThreadStack, ...] = ()
    kernels: tuple[GpuKernel, ...] = ()
    error: str = ""
    """Why there are no (or not all) stacks, and what to do about it."""
    rank: RankId | None = None
    command: str = ""
    """The command line or title, where the tool's output contains it."""
    state: str = ""
    """The process's scheduler state, one letter, where the tool says it."""
    kernels_listed: bool | None = None
    """Whether the tool listed the device's kernels: if True, empty ``kernels`` mean an idle device.
    False where it tried and could not; None where it never looks."""
    sources: dict[str, str] = {}
    """The path of each Python file as the process sees it, by its name in the frames; only where
    the tool says it, and there is only one."""
    blocks: dict[str, tuple[str, ...]] = {}
    """The loops and branches around each place in the program's text, outermost first
    (``evidence.stacks.frames.blocks``), by place ("function (file:line)"); only where the text was
    read."""


Activity = Literal[
    "collective-wait",
    "collective-enter",
    "device-wait",
    "gil-wait",
    "lock-wait",
    "input-wait",
    "storage-wait",
    "network-wait",
    "sleep",
    "allocation",
    "compile",
    "checkpoint",
    "startup",
    "idle",
    "compute",
    "unknown",
]


class EarlierLook(msgspec.Struct, frozen=True, kw_only=True):
    """Where a process stood in a round of stacks before the one that is shown."""

    rounds_before: int
    """The last one before has 1; one in which it was not readable is left out."""
    seconds_before: float
    shared: int
    """So many of its places, from the outermost on, are those of the signature that is shown."""
    rest: tuple[str, ...] = ()
    """Those that followed."""


class ChildWork(msgspec.Struct, frozen=True):
    """How long the processes below one have run."""

    at: float
    """The Unix time at which that was read."""
    ran: dict[int, float]
    """Seconds that each had run or waited for a CPU, and that its children had run that have ended;
    by pid."""
    ages: dict[int, float] = {}
    """If it is not known whether any of them is awaited: seconds since the child was started that
    each is, or is below; by pid. 0 where an answer of it may be awaited."""


class StackFact(msgspec.Struct, frozen=True, kw_only=True):
    """What one process's stacks show, in the terms that the verdict needs."""

    process: ProcessId
    rank: RankId | None = None
    tool: Tool = "py-spy"
    at: float = 0.0
    signature: tuple[str, ...] = ()
    """The telling thread's frames, outermost first, in a form equal for equal places in the code
    ("function (file:line)"): two rounds with the same signature did not move."""
    activity: Activity = "unknown"
    label: str = ""
    """A short phrase for people, such as "in all_reduce", "reading from a FIFO" or "time.sleep"."""
    waits_for_others: bool | None = None
    """True in a collective, or in a device's wait for one; False where it is known to be elsewhere;
    None where the frames tell nothing."""
    holds_gil: bool | None = None
    error: str = ""
    operation: str = ""
    """The collective or transfer that it is in ("all_reduce", "recv"), where the frames name it."""
    thread: str = ""
    """Name or id of the telling thread."""
    tid: int | None = None
    """The id of the telling thread, where the tool says it."""
    switches: int | None = None
    """How often the telling thread had been put on a CPU (third field of its schedstat). If the
    number is the same as at the look before, the thread has done nothing. None where it was not
    read."""
    wanted: float | None = None
    """Seconds that the telling thread had run or waited for a CPU by then (the first two fields).
    """
    ran: float | None = None
    """The part of them that it had run."""
    children: ChildWork | None = None
    """How long the processes have run that the telling thread waits for, where these are its own:
    their end, their output, their answer, a pool, a data loader's batch. None where it waits for
    something else, or none is there."""
    wakes_at: float | None = None
    """The Unix time at which the kernel ends the wait of the telling thread at the latest; None
    where it is in none whose end is known."""
    users_code: bool = False
    """Whether the user's code runs in the telling thread, not only a library's."""
    users_place: str = ""
    """The innermost frame of the user's code in that thread, in the form of the signature's; empty
    if there is none, or the tool shows none."""
    users_code_beside: bool = False
    """Whether another thread than the main and the telling one is in the user's code. Told of the
    processes of jobs of Ray actors only."""
    rests: bool = False
    """Whether its main thread rests, and the telling thread was not seen to run a call of Ray's: it
    may be a thread of the process's own."""
    active: bool | None = None
    """Whether the telling thread was on a CPU according to the tool; None where it does not say."""
    state: str = ""
    """The scheduler state as one letter, where a tool said it."""
    gil_waiters: int = 0
    """How many threads of the process were seen to wait for the GIL."""
    keeps_gil: bool = False
    """Whether the telling thread has the GIL while it runs no Python: in C, asleep or busy."""
    runs_python: bool = False
    """Whether a debugger found it in the interpreter's own loop: no C code keeps the GIL."""
    aborts: bool = False
    """Whether one of its threads is in NCCL's abort of a communicator."""
    kernels: tuple[str, ...] = ()
    """Names of the kernels on its device."""
    kernels_listed: bool | None = None
    """The same as in ``StackTrace``."""
    blocks: dict[str, tuple[str, ...]] = {}
    """The same as in ``StackTrace``, for the places in ``signature``."""
    helper: str = ""
    """What the process is, where its stacks show that it is no rank: "dataloader worker",
    "launcher", ..."""
    alike: int = 1
    """In a verdict, how many processes stand at this place; this one is shown for all of them."""
    alike_ranks: str = ""
    """The ranks of these ("0-2, 5"); empty where it is shown for itself alone."""
    looks: int = 0
    """In a verdict, in how many rounds this process was seen by this kind of tool."""
    before: tuple[str, ...] = ()
    """In a verdict, its signature in the newest of these rounds that differs from this one; empty
    where it has not moved."""
    earlier: tuple[EarlierLook, ...] = ()
    """In a verdict: the last of these before this one, the newest first."""
    command: str = ""
