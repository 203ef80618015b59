"""The kinds of faults: the words about a culprit, what to do next, and how the engine treats the
kind.

What each means, and how it is recognised, is in ``docs/rules.md``.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from ray_sentinel.model.incident import FaultKind
from ray_sentinel.model.ras import RasKind
from ray_sentinel.model.recorder import RecorderKind

READ_LAST_LINES = "Read the rank's last log lines in the bundle; its peers' errors are echoes."


class KindOfFault(msgspec.Struct, frozen=True, kw_only=True):
    """The texts about one kind of fault, and how it is treated."""

    phrase: str
    """What follows the name of a culprit, as in "rank 3 has ended"."""
    next_steps: tuple[str, ...] = ()
    is_mild: bool = False
    """Whether it accuses no process of the job, and is only a warning."""
    proving_state: str = ""
    """The state of a process that proves it (``RankView.state_since``). No process ends because of
    it, so no other one fails after it. Empty where no state proves it."""
    is_checked: bool = False
    """Agents check each second whether a process of a Ray job still is so."""
    is_lack: bool = False
    """Whether it tells what is missing and who holds that, which changes while somebody waits for
    it."""


KINDS: Mapping[FaultKind, KindOfFault] = {
    "rank-dead": KindOfFault(
        phrase="has ended",
        next_steps=(
            READ_LAST_LINES,
            "Restart the job from its latest checkpoint.",
        ),
    ),
    "oom-killed": KindOfFault(
        phrase="was killed because memory ran out",
        next_steps=(
            "Compare the host memory of this node with its peers over the last steps.",
            "Give the rank more memory, or fewer dataloader workers, and restart.",
        ),
    ),
    "rank-stopped": KindOfFault(
        phrase="is stopped",
        next_steps=(
            "Find who stopped it (a debugger, a job scheduler, kill -STOP); kill -CONT lets it go "
            "on.",
        ),
        proving_state="stopped",
        is_checked=True,
    ),
    "gil-held": KindOfFault(
        phrase="holds its GIL in C code, so no Python code can run there",
        next_steps=(
            "The native stack in the bundle names the C function that keeps the GIL.",
            "Have that extension release the GIL around long calls, or give the call a time-out.",
        ),
        proving_state="gil-held",
    ),
    "kernel-blocked": KindOfFault(
        phrase="is blocked in the kernel (state D)",
        next_steps=(
            "The kernel stack in the bundle names the driver or file system.",
            "Check the kernel log of this node for driver faults, and its mounts; a process in "
            "state D cannot be killed: the node may need a reboot.",
        ),
        proving_state="blocked",
        is_checked=True,
    ),
    "cpu-spin": KindOfFault(
        phrase="spins on the CPU and makes no progress",
        next_steps=("The stack in the bundle shows the loop; two looks show the same place.",),
    ),
    "input-wait": KindOfFault(
        phrase="waits for input that does not come",
        next_steps=(
            "The stack names what it reads from: a queue, a pipe, a socket, a dataloader worker.",
            "Check the other end; give such reads a time-out.",
        ),
    ),
    "storage-wait": KindOfFault(
        phrase="waits for storage",
        next_steps=("Check the file system that the stack names, and I/O pressure on this node.",),
    ),
    "lock-deadlock": KindOfFault(
        phrase="waits for a lock that nobody releases",
        next_steps=(
            "The stacks of all its threads in the bundle show who holds what; look for two locks "
            "taken in different orders, or a fork while a thread held one.",
        ),
    ),
    "collective-mismatch": KindOfFault(
        phrase="calls a different collective from its peers",
        next_steps=(
            "Compare the call of the named rank with that of its peers in the report: the order, "
            "the shapes and the dtypes of collectives must be equal on all ranks of a group.",
        ),
    ),
    "device-stuck": KindOfFault(
        phrase="waits for a device that never finishes",
        next_steps=(
            "Check this GPU: Xid and ECC lines in the kernel log, power against utilisation.",
            "Leave the node out if it happens again on the same device.",
        ),
    ),
    "device-lost": KindOfFault(
        phrase="has lost its device",
        next_steps=("Drain the node and reset or replace the device.",),
    ),
    "node-lost": KindOfFault(
        phrase="is on a lost node",
        next_steps=("Check the machine itself; restart the job without it.",),
    ),
    "network": KindOfFault(
        phrase="cannot reach its peers",
        next_steps=("Check the ports that the report names, and the transport NCCL has chosen.",),
    ),
    "startup-stuck": KindOfFault(
        phrase="is stuck in its start-up",
        next_steps=(
            "The stack shows what the rank loads or compiles; compare with its peers.",
            "Check that MASTER_ADDR, MASTER_PORT and WORLD_SIZE are equal on all ranks, and so are "
            "the interface variables (NCCL_SOCKET_IFNAME and the like).",
        ),
    ),
    "slow": KindOfFault(
        phrase="is slower than its peers",
        next_steps=(
            "Compare this rank's node with the others: CPU load, clocks, temperature, links.",
        ),
    ),
    "stall": KindOfFault(
        phrase="waits for something outside the job",
        next_steps=(
            "Every rank waits in the same way for something outside: a data service, storage, a "
            "name server. Check that service; the job itself is well.",
        ),
        is_mild=True,
    ),
    "host-stuck": KindOfFault(
        phrase="is stuck in its own code",
        next_steps=("The stack shows the line where it stands.",),
    ),
    "actor-stuck": KindOfFault(
        phrase="stands still while others wait for it",
        next_steps=(
            "The stack shows the line where the actor stands; the chain shows who waits for it.",
            "Give such a wait a time-out in the actor, or the caller one in "
            "ray.get(..., timeout=).",
        ),
    ),
    "actor-dead": KindOfFault(
        phrase="has ended",
        next_steps=(READ_LAST_LINES, "Let Ray start such an actor again with max_restarts=."),
    ),
    "driver-stuck": KindOfFault(
        phrase="stands still, and nothing is asked of its actors",
        next_steps=("The stack shows the line where the driver stands.",),
    ),
    "driver-dead": KindOfFault(
        phrase="has ended",
        next_steps=("Read the driver's output: the actors that ended with it are echoes.",),
    ),
    "call-deadlock": KindOfFault(
        phrase="waits for a call that waits for it",
        next_steps=(
            "Each actor of the circle waits for a call that the next one cannot begin: return the "
            "reference in place of calling ray.get, or make the actors asynchronous.",
        ),
    ),
    "pending": KindOfFault(
        phrase="waits for resources that no node has free",
        next_steps=(
            "Compare what it asks for with what the nodes have (`ray status`); end what holds it, "
            "or ask for less.",
        ),
        is_mild=True,
        is_lack=True,
    ),
    "object-store": KindOfFault(
        phrase="waits for room in the object store",
        next_steps=(
            "Drop references to objects that are no longer needed, or start Ray with more "
            "object_store_memory.",
        ),
        is_lack=True,
    ),
    "starved": KindOfFault(
        phrase="gets no CPU",
        next_steps=("Look for other processes that use this node's CPUs.",),
    ),
    "paused": KindOfFault(
        phrase="is paused",
    ),
    "sentinel": KindOfFault(
        phrase="cannot be watched",
        next_steps=("See the sentinel's own logs under log_dir/logs.",),
        is_mild=True,
    ),
    "asked": KindOfFault(
        phrase="was captured by request",
    ),
    "unknown": KindOfFault(
        phrase="cannot be distinguished from its peers",
        next_steps=(
            "Read the classes of stacks in the report; set TORCH_FR_BUFFER_SIZE so that the flight "
            "recorder can tell more, or call attach() in the ranks.",
        ),
    ),
}

EVIDENCE_STEPS: Mapping[RecorderKind | RasKind, str] = {
    "rank-dead": "Check the log of this rank, its node and the node's kernel log.",
    "rank-unresponsive": "Check the state of this process (stopped, ended?) and its node "
    "(`ray-sentinel inspect NODE`).",
    "communicator-error": "Read the log of this rank around the first NCCL WARN.",
    "not-enqueued": "Look at the stacks of these ranks: their own code or interpreter is stuck "
    "(py-spy dump --pid PID, then `ray-sentinel explain stacks`).",
    "device-stuck": "Check the kernel log (Xid) and the GPU of these ranks, and the watchdog of "
    "their processes.",
    "collective-mismatch": "Compare the code paths, the data and the configuration of the ranks in "
    "front of this call; flight-recorder dumps show the calls.",
    "left-communicator": "Read the log of this rank: who called destroy_process_group?",
    "startup-stuck": "Read the logs of the ranks that are missing.",
    "no-dump": "Check whether the processes of these ranks are alive.",
    "waiting-outside": "If the job hangs, check its storage, data loading and services.",
    "stall": "Take flight-recorder dumps and stacks of all ranks; check the network and the GPUs.",
    "running": "If the job still hangs, take the same evidence again some seconds later, and give "
    "both (dumps: --earlier).",
    "no-mismatch": "Poll again some seconds later and give both polls; take stacks or "
    "flight-recorder dumps.",
    "cannot-tell": "Take the stacks of all ranks (`ray-sentinel explain stacks`), and check the "
    "network and the GPUs; a second set of dumps (--earlier), or another poll (`ncclras -v -f "
    "json`), tells whether anything moves.",
}
"""What to do next where nothing but flight-recorder dumps or answers of RAS tells a kind."""
