"""Finds the first cause among the errors of a job; the others are its echoes.

Errors come in cascades: one rank fails; its peers lose their connections, wait until a timeout, and
are ended by the launcher; the driver reports what it received. Classes form tiers by how much they
explain. The earliest error that training did not survive counts, unless one of a higher tier,
printed a little later (or at any time, if the kernel or the scheduler reports it), explains it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from ray_sentinel import regex as re
from ray_sentinel.evidence.logs.errors.exits import signal_name
from ray_sentinel.evidence.logs.lines.lines import Origin
from ray_sentinel.evidence.logs.records import Hit

_TIERS: tuple[frozenset[str], ...] = (
    frozenset({"gpu-lost", "oom-host", "node-fail", "head-lost"}),
    frozenset(
        {
            "oom-gpu",
            "checkpoint-fs-error",
            "checkpoint-load",
            "port-in-use",
            "etcd",
            "missing-env",
            "topology-change",
            "data-loading",
            "storage",
            "config",
            "nan-loss",
            "xla-compile",
            "preempted",
            "cancelled",
            "link-down",
            "illegal-memory-access",
            "hub-unreachable",
        }
    ),
    frozenset({"python-exception", "nccl-init", "rendezvous"}),
    frozenset({"signal-kill"}),
    frozenset({"actor-fail"}),
    frozenset({"nccl-timeout", "transport-lost", "heartbeat-timeout"}),
    frozenset({"hang", "startup-stuck", "engine-stalled", "throughput-degradation"}),
    frozenset({"unknown-death"}),
)
ANYTIME = 900.0
"""Seconds before or after a failure within which a machine's own record (kernel, scheduler) may
explain it."""
_PRINTED_LATE = 60.0
_AFTER_TIMEOUT = 2.0
_BY_PREEMPTION = frozenset(
    {"node-fail", "actor-fail", "signal-kill", "unknown-death", "cancelled", "heartbeat-timeout"}
)
_PEER_WENT = re.compile(
    r"ncclRemoteError|remote process exited|closed by (?:remote )?peer|[Cc]onnection reset by peer"
    r"|[Bb]roken pipe|Abort COMPLETE|communicator was aborted"
)
_VAGUE = frozenset(
    {
        "actor-fail",
        "engine-stalled",
        "hang",
        "heartbeat-timeout",
        "nccl-init",
        "nccl-timeout",
        "rendezvous",
        "startup-stuck",
        "throughput-degradation",
        "transport-lost",
        "unknown-death",
    }
)
"""Classes that say only that a peer went: they do not explain why it did."""
_NEAR_BYTES = 200_000
_ABORTED = frozenset({"exit-abort", "srun-task-aborted"})
_PASSED_ON = frozenset({"exit-by-launcher", "python-wrapper"})


def tier(kind: str) -> int:
    """The tier of a class of failure; 0 explains most."""
    return next((n for n, kinds in enumerate(_TIERS) if kind in kinds), len(_TIERS))


def class_of(hit: Hit, started: bool) -> str:
    """The hit's class; some signatures mean another one as long as no step has been made."""
    if not started and hit.signature.at_startup:
        return hit.signature.at_startup
    return hit.signature.kind


def is_trouble(hit: Hit) -> bool:
    """Whether the hit is a cause or a symptom, not an echo, harmless or a note."""
    return hit.signature.role in ("cause", "symptom")


def in_order(hits: Sequence[Hit]) -> list[Hit]:
    """The hits by time. A hit has the time of the last date before it in its file. Without one, it
    comes before everything with a later date in its own file, and never before what another file
    dates."""
    return sorted(hits, key=_placed(hits))


def _placed(hits: Sequence[Hit]) -> Callable[[Hit], tuple[float, int, int]]:
    begins: dict[int, float] = {}
    for hit in hits:
        if hit.time is not None:
            begins[hit.file] = min(hit.time, begins.get(hit.file, math.inf))

    def place(hit: Hit) -> tuple[float, int, int]:
        time = hit.time
        if time is None:
            time = hit.next_time if hit.next_time is not None else math.inf
            time = min(time, begins.get(hit.file, math.inf))
        return time, hit.file, hit.offset

    return place


def first_cause(hits: Sequence[Hit], started: bool) -> Hit | None:
    """The hit that explains the others; None if there is no trouble among ``hits``."""
    trouble = in_order([hit for hit in hits if is_trouble(hit)])
    if not trouble:
        echoes = in_order([hit for hit in hits if hit.signature.role == "echo"])
        return _loudest_echo(echoes) if echoes else None
    winner = trouble[0]
    for hit in trouble[1:]:
        if _explains(hit, winner, started):
            winner = hit
    return _broken_before(hits, winner, started) or winner


def _broken_before(hits: Sequence[Hit], winner: Hit, started: bool) -> Hit | None:
    """The connection that broke long before a time-out: the waiting processes waited for its data.

    One that broke shortly before is itself an echo: a peer's watchdog was a moment faster.
    """
    if class_of(winner, started) not in ("nccl-timeout", "hang") or winner.time is None:
        return None
    for hit in in_order(hits):
        if hit.signature.kind == "transport-lost" and hit.own_time and hit.time is not None:
            return hit if winner.time - hit.time > _PRINTED_LATE else None
    return None


def _loudest_echo(echoes: Sequence[Hit]) -> Hit:
    """The echo that says most; in a launcher's table, the row that it calls the root.

    What a launcher does or passes on says less than that a rank aborted.
    """
    aborted = any(h.signature.id in _ABORTED for h in echoes)
    telling = [h for h in echoes if not aborted or h.signature.id not in _PASSED_ON]
    chosen = min(telling, key=lambda h: tier(h.signature.kind))
    if chosen.exit is None:
        return chosen
    rows = [h for h in echoes if h.exit is not None and h.signature.kind == chosen.signature.kind]
    roots = [h for h in rows if h.exit is not None and h.exit.root]
    return next((h for h in roots if _within(h, chosen, _PRINTED_LATE, unknown=True)), chosen)


def _explains(later: Hit, winner: Hit, started: bool) -> bool:
    kind, told = class_of(later, started), class_of(winner, started)
    rank, old = tier(kind), tier(told)
    if told == "actor-fail" and kind in ("nccl-timeout", "heartbeat-timeout"):
        # Ray says that an actor died before that actor's own last lines are streamed.
        dead = winner.groups.get("pid", "")
        return dead.isdigit() and later.origin.pid == int(dead)
    if kind == "preempted" and told in _BY_PREEMPTION:
        return _within(later, winner, ANYTIME, unknown=True)
    if reports_lost_peer(winner) and is_concrete(later, kind):
        return _apart(later, winner) <= (ANYTIME if rank == 0 else _PRINTED_LATE)
    if reports_lost_peer(later) and is_concrete(winner, told):
        return False
    if told == "signal-kill" and kind in _VAGUE:
        return False  # a crash before it is why the peer went
    if later.signature.role == "symptom" and winner.signature.role == "cause":
        return False
    if rank == old:
        return _is_more_telling(later, winner)
    if rank > old:
        return False
    if rank == 0:
        return _within(later, winner, ANYTIME, unknown=True)
    if kind == "cancelled":
        return told in ("signal-kill", "actor-fail", "unknown-death") and _within(
            later, winner, _PRINTED_LATE, unknown=True
        )
    if told in ("nccl-timeout", "heartbeat-timeout", "hang"):
        return _within(later, winner, _AFTER_TIMEOUT, unknown=_before(later, winner))
    return _within(later, winner, _PRINTED_LATE, unknown=True)


def reports_lost_peer(hit: Hit) -> bool:
    """Whether the line says that another process is gone, and nothing about why."""
    return hit.signature.peer_lost or _PEER_WENT.search(hit.text) is not None


def is_concrete(hit: Hit, kind: str) -> bool:
    """Whether the line says what happened to the process that it is about; SIGTERM is sent to all
    others."""
    if kind in _VAGUE or reports_lost_peer(hit):
        return False
    return kind != "cancelled" or hit.signature.role == "cause"


def _apart(one: Hit, other: Hit) -> float:
    """Seconds between two lines at the least: an undated one was printed between its neighbours.

    Two lines of one file that are far apart in it have nothing to do with each other.
    """
    dated = one.own_time and other.own_time
    if not dated and one.file == other.file and abs(one.offset - other.offset) > _NEAR_BYTES:
        return math.inf
    (first, until), (since, last) = _span(one), _span(other)
    return max(0.0, since - until, first - last)


def _span(hit: Hit) -> tuple[float, float]:
    if hit.own_time and hit.time is not None:
        return hit.time, hit.time
    since = hit.time if hit.time is not None else -math.inf
    return since, hit.next_time if hit.next_time is not None else math.inf


def _is_more_telling(later: Hit, winner: Hit) -> bool:
    """Whether ``later``, of the same tier, says more: a cause does than a symptom printed just
    before."""
    if winner.signature.role == "symptom" and later.signature.role == "cause":
        return _within(later, winner, _PRINTED_LATE, unknown=True)
    same_record = later.signature.id == winner.signature.id
    if same_record and _shows_its_process(later) and not _shows_its_process(winner):
        return _within(later, winner, _PRINTED_LATE, unknown=True)
    rows = later.exit, winner.exit
    if rows[0] is not None and rows[1] is not None and rows[0].root and not rows[1].root:
        return _within(later, winner, _PRINTED_LATE, unknown=True)
    same_place = later.file == winner.file and later.offset - winner.offset < 4000
    if same_place and later.signature.kind == winner.signature.kind:
        return later.signature.weight > winner.signature.weight + 20
    return False


def _shows_its_process(hit: Hit) -> bool:
    """Whether the line itself shows the process that it accuses; the kernel's first one about a
    kill shows who asked for memory."""
    pid = hit.groups.get("pid", "")
    return hit.signature.accuses == "named" and bool(pid) and pid in hit.text


def _within(later: Hit, winner: Hit, seconds: float, *, unknown: bool) -> bool:
    dated = later.own_time or winner.own_time or later.file != winner.file
    if dated and later.time is not None and winner.time is not None:
        return abs(later.time - winner.time) <= seconds
    if later.file == winner.file:
        return unknown and later.offset - winner.offset <= _NEAR_BYTES
    return unknown


def _before(later: Hit, winner: Hit) -> bool:
    """Whether ``later`` does not, in undated text, come after the winner in the same file.

    Lines of several processes are in no order: a process that reports a peer's loss says that the
    peer went first.
    """
    if later.file != winner.file:
        return True
    return _PEER_WENT.search(winner.text) is not None and _others(later.origin, winner.origin)


def _others(one: Origin, other: Origin) -> bool:
    """Both name their process, and the processes differ."""
    pids, ranks = (one.pid, other.pid), (one.rank, other.rank)
    return any(None not in both and both[0] != both[1] for both in (pids, ranks))


def ended_by_signal(hit: Hit) -> str:
    """The signal's name if the hit reports an exit by one."""
    if hit.exit is not None:
        return signal_name(hit.exit.code)
    code = hit.groups.get("code", "")
    if code.lstrip("-").isdigit():
        return signal_name(int(code))
    said = hit.groups.get("signal", "")
    if said.startswith("SIG"):
        return said
    return {"Killed": "SIGKILL", "Segmentation fault": "SIGSEGV", "Bus error": "SIGBUS"}.get(
        said, ""
    )
