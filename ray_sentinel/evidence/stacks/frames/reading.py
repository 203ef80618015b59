"""One thread's frames, read: what it does, in whose hands it is, and where in the code.

The innermost frame of the highest level decides (see ``meanings``), with three exceptions. The
frame of a collective, or of whatever waits for the network, counts only if no user code runs inside
it, because a hook or a request's handler that hangs there hangs by itself. A wait for the device
inside a collective's own frames is that collective's. And a compiler may have inlined ``take_gil``
away: CPython waits for its lock with a timed condition variable, and nothing else in CPython does.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from functools import lru_cache

import msgspec

from ray_sentinel import regex as re
from ray_sentinel.evidence.stacks.frames import meanings as m
from ray_sentinel.evidence.stacks.frames.known_native import DRIVERS, NATIVE
from ray_sentinel.evidence.stacks.frames.known_python import PYTHON
from ray_sentinel.evidence.stacks.frames.meanings import FramePattern, Meaning
from ray_sentinel.evidence.stacks.frames.names import (
    is_address,
    is_interpreter,
    last_name,
    place,
    plain,
)
from ray_sentinel.model.stacks import Frame

# Known functions of the Linux kernel.
#
# Matched in full against the name that ``names.plain`` leaves. Rows are tried in order, the first
# that matches a frame gives its meaning. To teach a new library, add a row.

KERNEL: tuple[FramePattern, ...] = (
    FramePattern(
        m.STOPPED,
        r"do_signal_stop|do_jobctl_trap|ptrace_stop|get_signal_stop|do_freezer_trap"
        r"|__refrigerator|refrigerator|cgroup_freeze\w*|ptrace_notify",
    ),
    FramePattern(
        m.FIFO, r"(anon_)?pipe_(read|write|wait\w*)|fifo_open|wait_for_partner|n_tty_read|tty_read"
    ),
    FramePattern(
        m.NETWORK,
        r"(tcp|udp|inet|inet6|unix|sock|sk|skb|svc|sctp|vsock|tls)_\w*(recv|send|accept|wait"
        r"|connect|read|poll_wait)\w*|(__)?skb_(wait|recv)\w*|unix_stream_read_generic"
        r"|sys_(recv|send|accept|connect)\w*|inet_csk_accept|sock_\w+",
    ),
    FramePattern(
        m.DEVICE,
        r"(nvidia|nv|nvkms|uvm|rm|os_acquire|_nv\d+rm|amdgpu|kfd|amdkfd|dma_fence|drm|habanalabs"
        r"|xe|i915|gdrdrv|nvidia_p2p)_\w+",
    ),
    FramePattern(
        m.STORAGE,
        r"(nfs|nfs4|rpc|ceph|fuse|lustre|ll|cl|ldlm|osc|ptlrpc|mdc|gpfs|gss|cifs|smb2?|beegfs|wekafs"
        r"|weka|ext4|xfs|btrfs|jbd2|f2fs|zfs|dm|md|raid\d*|blk|bio|nvme|scsi|loop|ovl|p9|v9fs"
        r"|netfs|afs|orangefs|fscache|cachefiles|iomap|squashfs)_\w+"
        r"|(folio|page|filemap|truncate|writeback|wb|balance_dirty|wait_on|submit_bio|vfs_fsync"
        r"|generic_file|file_write|do_fsync|sync|bdi|io_schedule|inode|rq_qos|wbt)\w*"
        r"|fsync|fdatasync|sync_file_range|msync|xlog_\w+|wait_transaction\w*|start_this_handle",
    ),
    FramePattern(
        m.SLEEP, r"do_nanosleep|hrtimer_nanosleep|common_nsleep\w*|sys_(clock_)?nanosleep"
    ),
    FramePattern(
        m.SIGNAL, r"sys_pause|(do_)?sigtimedwait|sigsuspend|sys_rt_sig(timedwait|suspend)"
    ),
    FramePattern(m.CHILD, r"do_wait|kernel_wait4|kernel_waitid|sys_wait\w+"),
    FramePattern(
        m.LOCK,
        r"flock_lock\w*|locks_lock\w*|fcntl_setlk\w*|posix_lock\w*|mutex_lock\w*"
        r"|rwsem_down\w*|down_(read|write)\w*|sys_flock|do_semtimedop|do_mq_\w+",
    ),
    FramePattern(m.FIFO, r"eventfd_read|signalfd_\w+|timerfd_read\w*"),
    FramePattern(m.OPEN, r"do_sys_open\w*|path_openat|do_filp_open|sys_open\w*"),
    FramePattern(m.READ, r"ksys_read|vfs_read|sys_p?readv?(64)?|ksys_pread64"),
    FramePattern(m.WRITE, r"ksys_write|vfs_write|sys_p?writev?(64)?|ksys_pwrite64"),
    FramePattern(m.FUTEX, r"futex_\w+|do_futex|sys_futex\w*"),
    FramePattern(
        m.POLL,
        r"do_sys_poll|ep_poll|do_epoll_wait|do_select|core_sys_select|poll_schedule_timeout"
        r"|sys_(poll|ppoll|select|epoll_wait|sched_yield)|io_cqring_wait|read_events"
        r"|schedule_hrtimeout\w*",
    ),
)


class StackReading(msgspec.Struct, frozen=True, kw_only=True):
    """The meaning of one stack."""

    meaning: Meaning | None = None
    """What the telling frame means; None where no frame is known."""
    label: str = ""
    operation: str = ""
    signature: tuple[str, ...] = ()
    """Places in the code, outermost first, without what lies below the telling frame."""
    native_leaf: bool = False
    """The innermost frame that was seen is machine code."""

    @property
    def level(self) -> int:
        """How much the meaning explains; 0 if there is none."""
        return self.meaning.level if self.meaning else 0


_NATIVE = tuple((re.compile(row.function), row) for row in NATIVE)
_KERNEL = tuple((re.compile(row.function), row) for row in KERNEL)
_PYTHON = tuple((re.compile(row.function), re.compile(row.file), row) for row in PYTHON)
_DRIVERS = re.compile(DRIVERS)
_UNNAMED_DRIVER = FramePattern(m.DRIVER, "")
_OPERATION = re.compile(m.OPERATIONS, re.IGNORECASE)
_CANONICAL = {
    "allreduce": "all_reduce",
    "allgather": "all_gather",
    "reducescatter": "reduce_scatter",
    "alltoall": "all_to_all",
    "alltoallv": "all_to_all",
    "bcast": "broadcast",
    "sendrecv": "send_recv",
}
_UNNAMED = "a collective"
_CPYTHON = re.compile(r"(^|/)(lib)?python3[\w.]*$|(^|/)(Python|Modules)/\w+\.[ch]$")
_LIBRARY = re.compile(
    r"(^|/)(site-packages|dist-packages|lib/python3\.\d+|torch|jax|jaxlib|deepspeed|horovod|vllm"
    r"|sglang|megatron|ray|numpy|accelerate|lightning\w*|pytorch_lightning|transformers"
    r"|transformer_engine|apex|fairscale|colossalai|mpi4py)/|^<frozen "
)
_STANDARD = frozenset(sys.stdlib_module_names)


@lru_cache(maxsize=65_536)
def match(frame: Frame) -> FramePattern | None:
    """The row that matches ``frame``, or None."""
    if not frame.native:
        if frame.function == "<module>":
            return None  # a module's body runs when it is imported, whatever the module is for
        name = last_name(frame.function)
        file = frame.file.replace("\\", "/")
        for function, path, row in _PYTHON:
            if path.search(file) and function.fullmatch(name):
                return row
        return None
    if is_address(frame.function):
        return _UNNAMED_DRIVER if _DRIVERS.search(frame.file) else None
    name = plain(frame.function)
    kernel = frame.file == "kernel" or frame.file.startswith("kernel:")
    for function, row in _KERNEL if kernel else _NATIVE:
        if function.fullmatch(name):
            return row
    return None


def read(frames: tuple[Frame, ...]) -> StackReading:
    """The meaning of ``frames`` (innermost first)."""
    decided = _decide(frames)
    if decided is None:
        return StackReading(signature=_signature(frames, 0), native_leaf=_native_leaf(frames))
    index, meaning = decided
    operation = _operation(frames, index) if "{op}" in meaning.label else ""
    label = meaning.label.replace("{op}", operation or _UNNAMED)
    return StackReading(
        meaning=meaning,
        label=label,
        operation=operation,
        signature=_signature(frames, index),
        native_leaf=_native_leaf(frames),
    )


def _decide(frames: tuple[Frame, ...]) -> tuple[int, Meaning] | None:
    if (gil := _inlined_gil_wait(frames)) is not None:
        return gil, m.GIL
    best: tuple[int, Meaning] | None = None
    own_code = False
    for index, frame in enumerate(frames):
        row = match(frame)
        if row is None:
            # A module's body inside of a wait is what that imports.
            own_code = own_code or (_is_users(frame) and frame.function != "<module>")
            continue
        meaning = row.meaning
        # Ray and network servers wait in their own frames; with user code inside such a frame, they
        # run a task or handle a request.
        serves = meaning is m.RAY or meaning is m.NETWORK
        if (meaning.waits or meaning.delegates or serves) and own_code:
            continue
        if meaning.activity == "startup" and meaning.level == 1 and not _importing(frames[:index]):
            continue
        # Waiting for the GIL is only ever the innermost thing that a thread does.
        if meaning.level == 4 and any(not inner.native for inner in frames[:index]):
            continue
        on_thread = best is not None and best[1].delegates == "thread"
        # An engine that waits at its queue has no request; inside of one it is at work.
        if meaning is m.NO_REQUEST and not on_thread:
            continue
        # A future waits on a condition, and a pool that ends waits for its threads: the outer frame
        # says whose wait it is.
        tells_whose = on_thread and (meaning.delegates == "pool" or meaning is m.NO_REQUEST)
        # A collective may wait for the device itself: whoever looks only at Python sees that call.
        of_call = best is not None and best[1] is m.DEVICE and meaning is m.COLLECTIVE
        if best is None or meaning.level > best[1].level or tells_whose or of_call:
            best = (index, meaning)
        if best[1].level >= 3 and best[1] is not m.DEVICE:
            break
    return best


def _inlined_gil_wait(frames: tuple[Frame, ...]) -> int | None:
    """The index of a timed condition wait called by CPython itself, if that is the leaf."""
    for index, frame in enumerate(frames[:12]):
        if not frame.native:
            return None
        name = plain(frame.function)
        if is_address(frame.function) or name.startswith(("futex", "pthread_cond", "syscall")):
            if name != "pthread_cond_timedwait" or index + 1 >= len(frames):
                continue
            caller = frames[index + 1]
            within = caller.native and _CPYTHON.search(caller.file)
            if within and "lock" not in plain(caller.function).lower():
                return index
            continue
        return None
    return None


def runs_users_code(frames: Iterable[Frame]) -> bool:
    """Whether any of the frames is Python code of the user, not of a known library."""
    return any(_is_users(frame) for frame in frames if match(frame) is None)


def users_place(frames: Iterable[Frame]) -> str:
    """The place of the first of the frames, innermost first, that is such code; empty if none
    is."""
    own = (frame for frame in frames if match(frame) is None and _is_users(frame))
    return next((place(frame) for frame in own), "")


def _is_users(frame: Frame) -> bool:
    """Whether a frame that no row knows is Python code of the user's, such as the body of a script
    that was started."""
    if frame.native or not frame.file:
        return False
    file = frame.file.replace("\\", "/")
    # Of what has no name of its own, only the body of a script: an installed command (``bin/ray``),
    # or what ``python -c`` runs (``<string>``), calls others.
    script = frame.function == "<module>" and file.endswith(".py")
    if (frame.function.startswith("<") and not script) or _LIBRARY.search(file):
        return False
    top = file.lstrip("/").split("/", 1)[0].removesuffix(".py")
    return file.startswith("/") or top not in _STANDARD


def _importing(inner: tuple[Frame, ...]) -> bool:
    """Whether what runs inside an import is a module's body, not a function that it called."""
    return all(
        frame.native or frame.function == "<module>" or "importlib" in frame.file for frame in inner
    )


def _operation(frames: tuple[Frame, ...], index: int) -> str:
    """The collective's name: at the telling frame, or the nearest known one around it."""
    for frame in (*frames[index:], *reversed(frames[:index])):
        row = match(frame)
        if row is None or row.meaning is not m.COLLECTIVE:
            continue
        if row.operation and row.operation != _UNNAMED:
            return row.operation
        function = plain(frame.function) if frame.native else last_name(frame.function)
        if not row.operation and (found := operation_name(function)):
            return found
    return ""


@lru_cache(maxsize=4_096)
def operation_name(function: str) -> str:
    """The operation in the name of a function or kernel, in PyTorch's spelling.

    >>> operation_name("ncclDevKernel_AllReduce_Sum_f32_RING_LL")
    'all_reduce'
    """
    tail = function.rsplit("::", 1)[-1]
    found = _OPERATION.search(tail) or _OPERATION.search(function)
    if found is None:
        return ""
    name = found.group().lower()
    return _CANONICAL.get(name.replace("_", ""), name)


def _signature(frames: tuple[Frame, ...], index: int) -> tuple[str, ...]:
    """Places from the outermost frame to the telling one: below it, a wait's leaves flicker."""
    places = (place(frame) for frame in reversed(frames[index:]))
    return tuple(item for item in places if item)


def _native_leaf(frames: tuple[Frame, ...]) -> bool:
    return bool(frames) and frames[0].native and not is_interpreter(frames[0])


_LETS_GO = re.compile(
    r"time_sleep|pysleep|PyThread_acquire_lock\w*|lock_PyThread_acquire_lock|acquire_timed|os_\w+"
    r"|sock_\w+|select_\w+|semlock_\w+|.*gil_scoped_release.*|pybind11::gil_scoped_release::.*"
)


def lets_gil_go(frames: tuple[Frame, ...]) -> bool:
    """Whether the thread is in a CPython call that releases the GIL while it blocks."""
    for frame in frames:
        if not frame.native:
            # The functions of these files block only in calls that release the GIL.
            return last_name(frame.file.replace("\\", "/").removesuffix(".py")) in (
                "threading",
                "queue",
                "selectors",
                "subprocess",
            )
        if _LETS_GO.fullmatch(plain(frame.function)) or "gil_scoped_release" in frame.function:
            return True
    return False
