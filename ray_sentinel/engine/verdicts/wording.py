"""The words for each kind of fault: a phrase, and the next steps."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from ray_sentinel.model.incident import FaultKind, RankLog, Verdict

PHRASES: dict[FaultKind, str] = {
    "rank-dead": "has ended",
    "oom-killed": "was killed because memory ran out",
    "rank-stopped": "is stopped (state T)",
    "gil-held": "holds its GIL in C code, so no Python code can run there",
    "kernel-blocked": "is blocked in the kernel (state D)",
    "cpu-spin": "spins on the CPU and makes no progress",
    "input-wait": "waits for input that does not come",
    "storage-wait": "waits for storage",
    "lock-deadlock": "waits for a lock that nobody releases",
    "collective-mismatch": "calls a different collective from its peers",
    "device-stuck": "waits for a device that never finishes",
    "device-lost": "has lost its device",
    "node-lost": "is on a lost node",
    "network": "cannot reach its peers",
    "startup-stuck": "is stuck in its start-up",
    "slow": "is slower than its peers",
    "stall": "waits for something outside the job",
    "host-stuck": "is stuck in its own code",
    "actor-stuck": "stands still while others wait for it",
    "actor-dead": "has ended",
    "driver-stuck": "stands still, and nothing is asked of its actors",
    "driver-dead": "has ended",
    "call-deadlock": "waits for a call that waits for it",
    "pending": "waits for resources that no node has free",
    "object-store": "waits for room in the object store",
    "starved": "gets no CPU",
    "paused": "is paused",
    "sentinel": "cannot be watched",
    "asked": "was captured by request",
    "unknown": "cannot be distinguished from its peers",
}

ECHOES = "Its peers' errors are echoes."
READ_LAST_LINES = "Read the rank's last log lines in the bundle; its peers' errors are echoes."

OF_ENGINES = (
    "The engine has requests, and none of its ranks is to blame: its front end or scheduler, in "
    "the actor or below it, does not hand them on. Look at its log, and restart the engine.",
)
"""What to do about an actor whose inference engine hangs."""
NEXT_STEPS: dict[FaultKind, tuple[str, ...]] = {
    "rank-dead": (
        READ_LAST_LINES,
        "Restart the job from its latest checkpoint.",
    ),
    "oom-killed": (
        "Compare the host memory of this node with its peers over the last steps.",
        "Give the rank more memory, or fewer dataloader workers, and restart.",
    ),
    "rank-stopped": (
        "Find who stopped it (a debugger, a job scheduler, kill -STOP); kill -CONT lets it go on.",
    ),
    "gil-held": (
        "The native stack in the bundle names the C function that keeps the GIL.",
        "Have that extension release the GIL around long calls, or give the call a time-out.",
    ),
    "kernel-blocked": (
        "The kernel stack in the bundle names the driver or file system.",
        "Check the kernel log of this node for driver faults, and its mounts; a process in state D "
        "cannot be killed: the node may need a reboot.",
    ),
    "cpu-spin": ("The stack in the bundle shows the loop; two looks show the same place.",),
    "input-wait": (
        "The stack names what it reads from: a queue, a pipe, a socket, a dataloader worker.",
        "Check the other end; give such reads a time-out.",
    ),
    "storage-wait": ("Check the file system that the stack names, and I/O pressure on this node.",),
    "lock-deadlock": (
        "The stacks of all its threads in the bundle show who holds what; look for two locks "
        "taken in different orders, or a fork while a thread held one.",
    ),
    "collective-mismatch": (
        "Compare the call of the named rank with that of its peers in the report: the order, the "
        "shapes and the dtypes of collectives must be equal on all ranks of a group.",
    ),
    "device-stuck": (
        "Check this GPU: Xid and ECC lines in the kernel log, power against utilisation.",
        "Leave the node out if it happens again on the same device.",
    ),
    "device-lost": ("Drain the node and reset or replace the device.",),
    "node-lost": ("Check the machine itself; restart the job without it.",),
    "network": ("Check the ports that the report names, and the transport NCCL has chosen.",),
    "startup-stuck": (
        "The stack shows what the rank loads or compiles; compare with its peers.",
        "Check that MASTER_ADDR, MASTER_PORT and WORLD_SIZE are equal on all ranks, and so are the "
        "interface variables (NCCL_SOCKET_IFNAME and the like).",
    ),
    "slow": ("Compare this rank's node with the others: CPU load, clocks, temperature, links.",),
    "stall": (
        "Every rank waits in the same way for something outside: a data service, storage, a name "
        "server. Check that service; the job itself is well.",
    ),
    "host-stuck": ("The stack shows the line where it stands.",),
    "actor-stuck": (
        "The stack shows the line where the actor stands; the chain shows who waits for it.",
        "Give such a wait a time-out in the actor, or the caller one in ray.get(..., timeout=).",
    ),
    "actor-dead": (READ_LAST_LINES, "Let Ray start such an actor again with max_restarts=."),
    "driver-stuck": ("The stack shows the line where the driver stands.",),
    "driver-dead": ("Read the driver's output: the actors that ended with it are echoes.",),
    "call-deadlock": (
        "Each actor of the circle waits for a call that the next one cannot begin: return the "
        "reference in place of calling ray.get, or make the actors asynchronous.",
    ),
    "pending": (
        "Compare what it asks for with what the nodes have (`ray status`); end what holds it, or "
        "ask for less.",
    ),
    "object-store": (
        "Drop references to objects that are no longer needed, or start Ray with more "
        "object_store_memory.",
    ),
    "starved": ("Look for other processes that use this node's CPUs.",),
    "paused": (),
    "sentinel": ("See the sentinel's own logs under log_dir/logs.",),
    "asked": (),
    "unknown": (
        "Read the classes of stacks in the report; set TORCH_FR_BUFFER_SIZE so that the flight "
        "recorder can tell more, or call attach() in the ranks.",
    ),
}

MOST_TOLD = 4
"""Culprits whose last lines are among the next steps."""


def with_last_lines(
    verdict: Verdict, logs: Iterable[RankLog], before: Iterable[RankLog] = ()
) -> Verdict:
    """The verdict whose steps say what its culprits wrote last, where that is known, in place of
    sending the reader to look for it; ``before`` are the logs that its steps tell already."""
    by_process: dict[tuple[str, int | None, int | None], RankLog] = {
        (log.host, log.rank, log.pid): log for log in logs
    }
    blamed = [by_process.get((c.host, c.rank, c.pid)) for c in verdict.culprits]
    found = [log for log in blamed if log is not None and log.ended]
    if not found:
        return verdict
    old = {READ_LAST_LINES, ECHOES, *map(_told, before)}
    kept = tuple(step for step in verdict.next_steps if step not in old)
    echoes = (ECHOES,) if {READ_LAST_LINES, ECHOES} & set(verdict.next_steps) else ()
    told = [_told(log) for log in found[:MOST_TOLD]]
    return msgspec.structs.replace(verdict, next_steps=(*told, *echoes, *kept))


def _told(log: RankLog) -> str:
    who = f"{log.who} on {log.host}"
    if not log.file:
        return f"The last lines of {who} are not in the bundle: {log.missing or 'it wrote none'}."
    if log.telling:
        return f"{who[0].upper()}{who[1:]} ended with: {log.telling} ({log.file} in the bundle)"
    if log.shared:
        return f"Read {log.file} in the bundle: the last lines of {who}, and of others in between."
    return f"Read {log.file} in the bundle: the last lines of {who}, none of which names an error."
