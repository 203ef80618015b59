"""What the RAS service answers: JSON and text, as its versions print them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from tests.support.ras_sim.job import FUNCTIONS, Comm, Job, Peer, Seat

ERRORS = {
    1: "Unhandled CUDA error",
    2: "System error",
    3: "Internal error",
    6: "Remote process error",
}
ORDER = ("NOCOMM", "INIT", "RUNNING", "FINALIZE", "ABORT")


def as_json(job: Job, version: str = "2.29.3", *, broken: bool = False) -> str:
    """``broken`` as 2.28.9: no comma before the status of a missing rank."""
    comms = ",\n".join(_json_comm(comm, broken) for comm in job.comms)
    mute = sum(peer.mute for peer in job.peers)
    return (
        f'{{\n  "nccl_version": "{version}",\n  "cuda_runtime_version": 13000,\n'
        f'  "cuda_driver_version": 13000,\n  "timestamp": "{job.timestamp}",\n'
        f'  "communicators_count": {len(job.comms)},\n  "communicators": [\n{comms}\n  ],\n'
        f'  "ras": {{\n    "collection_time_sec": {2.05 if mute else 0.001:.3f},\n'
        f'    "timeouts_count": {mute}\n  }}\n}}\n'
    )


def _json_comm(comm: Comm, broken: bool) -> str:
    present = ",\n".join(_json_rank(rank, seat) for rank, seat in comm.present())
    missing = ",\n".join(_json_missing(rank, seat, broken) for rank, seat in comm.missing())
    return (
        f'    {{\n      "hash": "0x{comm.hash:x}",\n'
        f'      "secondary_hash": "0x{comm.host_hash:x}:0x{comm.pid_hash:x}",\n'
        f'      "size": {len(comm.seats)},\n      "ranks_count": {len(comm.present())},\n'
        f'      "missing_ranks_count": {len(comm.missing())},\n      "ranks": [\n{present}\n'
        f'      ],\n      "missing_ranks": [\n{missing}\n      ]\n    }}'
    )


def _json_place(rank: int, peer: Peer) -> str:
    return (
        f'        {{\n          "rank": {rank},\n          "host": "{peer.host}",\n'
        f'          "pid": {peer.pid},\n          "cuda_dev": {peer.gpu},\n'
        f'          "nvml_dev": {peer.gpu}'
    )


def _json_rank(rank: int, seat: Seat) -> str:
    flag = {True: "true", False: "false"}
    counts = ",\n".join(f'            "{name}": {seat.counts[name]}' for name in FUNCTIONS)
    return (
        f'{_json_place(rank, seat.peer)},\n          "status": {{\n'
        f'            "init_state": {seat.init},\n            "async_error": {seat.error},\n'
        f'            "finalize_called": {flag[seat.finalize]},\n'
        f'            "destroy_flag": {flag[seat.finalize]},\n'
        f'            "abort_flag": {flag[seat.abort]}\n          }},\n'
        f'          "collective_counts": {{\n{counts}\n          }}\n        }}'
    )


def _json_missing(rank: int, seat: Seat, broken: bool) -> str:
    flag = {True: "true", False: "false"}
    gone = seat.peer.dead or seat.peer.mute
    return (
        f'{_json_place(rank, seat.peer)}{"" if broken else ","}\n          "status": {{\n'
        f'            "unresponsive": {flag[gone]},\n'
        f'            "considered_dead": {flag[seat.peer.dead]}\n          }}\n        }}'
    )


def as_text(
    job: Job, version: str = "2.29.3", *, verbose: bool = True, library: str = "NCCL"
) -> str:
    """As ``ncclras`` prints it, with ``-v`` or without."""
    total = len(job.peers)
    nodes = total // job.per_node
    lines = [
        f"{library} version {version} compiled with CUDA 12.9",
        "CUDA runtime version 12090, driver version 13000",
        "",
        "Job summary",
        "===========",
        "",
        "  Nodes  Processes         GPUs  Processes     GPUs",
        "(total)   per node  per process    (total)  (total)",
        f"{nodes:7}  {job.per_node:9}  {1:11}  {total:9}  {total:7}",
        "",
        f"Communicators... ({2.05 if any(p.mute for p in job.peers) else 0.0:.2f}s)",
        "=============",
        "",
    ]
    comms = sorted(job.comms, key=lambda c: (-len(c.seats), -ORDER.index(_status(c)), _errors(c)))
    groups: list[list[Comm]] = []
    for comm in comms:
        like = (len(comm.seats), _status(comm), _errors(comm))
        if (
            groups
            and (len(groups[-1][0].seats), _status(groups[-1][0]), _errors(groups[-1][0])) == like
        ):
            groups[-1].append(comm)
        else:
            groups.append([comm])
    lines += [
        "Group     Comms     Nodes     Ranks     Ranks     Ranks    Status  Errors",
        "    #  in group  per comm  per node  per comm  in group",
    ]
    for number, group in enumerate(groups):
        first = group[0]
        present = first.present()
        per = Counter(seat.peer.host for _, seat in present).values()
        span = (
            "0" if not per else f"{min(per)}-{max(per)}" if min(per) != max(per) else f"{max(per)}"
        )
        unique = len({s.peer.world for c in group for _, s in c.present()})
        lines.append(
            f"{number:5}  {len(group):8}  {len(per):8}  {span:>8}  {len(first.seats):8}  {unique:8}"
            f"  {_status(first):>8}  {','.join(_errors(first)) or 'OK':>6}"
        )
    lines += ["", "Errors", "======", "", *_job_errors(job, verbose)]
    each = [(f"#{g}-{c}", comm) for g, group in enumerate(groups) for c, comm in enumerate(group)]
    for label, comm in each:
        lines += _incomplete(label, comm, verbose) + _failed(label, comm)
    lines += ["Warnings", "========", ""]
    if mute := sum(peer.mute for peer in job.peers):
        lines += [
            "TIMEOUT",
            f"  Encountered {mute} communication timeout{'s' * (mute > 1)} while gathering "
            "communicator data",
            "",
        ]
    for label, comm in each:
        lines += _mismatch(label, comm, verbose)
    return "\n".join(lines) + "\n"


def _status(comm: Comm) -> str:
    states = {seat.status for _, seat in comm.present()}
    states |= {"NOCOMM" for _, s in comm.missing() if not s.peer.dead and not s.peer.mute}
    return max(states, key=ORDER.index, default="NOCOMM")


def _errors(comm: Comm) -> tuple[str, ...]:
    present = [seat for _, seat in comm.present()]
    found = []
    if any(s.peer.dead or s.peer.mute for s in comm.seats):
        found.append("INCOMPLETE")
    if any(s.error or s.init not in (0, 7) for s in present):
        found.append("ERROR")
    states = {s.status for s in present} | {"NOCOMM" for s in comm.seats if not s.member}
    if len(states) > 1 or len({tuple(s.counts.values()) for s in present}) > 1:
        found.append("MISMATCH")
    return tuple(found)


def _shown(count: int, verbose: bool, total: int | None = None) -> bool:
    if count == 1:
        return True
    if verbose:
        return total is None or count < 0.5 * total
    return count <= 10 and (total is None or count <= 0.25 * total)


def _job_errors(job: Job, verbose: bool) -> list[str]:
    lines: list[str] = []
    mute = [peer for peer in job.peers if peer.mute and not peer.dead]
    dead = [peer for peer in job.peers if peer.dead]
    if mute:
        plural = "es" if len(mute) > 1 else ""
        lines += ["INCOMPLETE", f"  Missing communicator data from {len(mute)} job process{plural}"]
        lines += _processes(mute) if _shown(len(mute), verbose) else []
        lines.append("")
    if dead:
        plural = "es are" if len(dead) > 1 else " is"
        lines += [
            "DEAD",
            f"  {len(dead)} job process{plural} considered dead (unreachable via the RAS network)",
        ]
        lines += _processes(dead) if _shown(len(dead), verbose) else []
        lines.append("")
    return lines


def _processes(peers: Sequence[Peer]) -> list[str]:
    ordered = sorted(peers, key=lambda p: (p.host, p.pid))
    return [f"  Process {p.pid} on node {p.host} managing GPU {p.gpu}" for p in ordered]


def _incomplete(label: str, comm: Comm, verbose: bool) -> list[str]:
    gone = [(r, s) for r, s in comm.missing() if s.peer.dead or s.peer.mute]
    if not gone:
        return []
    plural = "s" if len(gone) > 1 else ""
    lines = [
        f"{label} ({comm.hash:016x}) INCOMPLETE",
        f"  Missing communicator data from {len(gone)} rank{plural}",
    ]
    if _shown(len(gone), verbose):
        lines += [f"  Rank {rank} -- {_where(seat)}" for rank, seat in gone]
    return [*lines, ""]


def _failed(label: str, comm: Comm) -> list[str]:
    failed = [(r, s) for r, s in comm.present() if s.error]
    if not failed:
        return []
    plural = "s" if len(failed) > 1 else ""
    lines = [
        f"{label} ({comm.hash:016x}) ERROR",
        f"  Asynchronous error{plural} on {len(failed)} rank{plural}",
    ]
    kinds = Counter(seat.error for _, seat in failed)
    for error, count in kinds.most_common():
        if count > 1:
            lines.append(f"  {count} ranks reported {ERRORS[error]}")
        for rank, seat in failed:
            if seat.error == error:
                what = "" if count > 1 else f" reported {ERRORS[error]}"
                lines.append(f"  Rank {rank}{what} -- {_where(seat)}")
    return [*lines, ""]


def _mismatch(label: str, comm: Comm, verbose: bool) -> list[str]:
    if "MISMATCH" not in _errors(comm):
        return []
    lines = [f"{label} ({comm.hash:016x}) MISMATCH"]
    answering = [(r, s) for r, s in enumerate(comm.seats) if not s.peer.dead and not s.peer.mute]
    states = Counter(seat.status for _, seat in answering)
    if len(states) > 1:
        lines.append("  Communicator ranks have different status")
        for state, count in states.most_common():
            of = [(r, s) for r, s in answering if s.status == state]
            lines += _group(
                of, count, len(comm.seats), verbose, f"have status {state}", f"has status {state}"
            )
    for name in FUNCTIONS:
        counts = Counter(seat.counts[name] for _, seat in comm.present())
        if len(counts) < 2:
            continue
        lines.append(f"  Communicator ranks have different {name} operation counts")
        for value, count in counts.most_common():
            of = [(r, s) for r, s in comm.present() if s.counts[name] == value]
            done = f"launched up to operation {value}" if value else "not launched any operations"
            lines += _group(of, count, len(comm.seats), verbose, f"have {done}", f"has {done}")
        lines.append("")
    return lines


def _group(
    of: Sequence[tuple[int, Seat]], count: int, size: int, verbose: bool, many: str, one: str
) -> list[str]:
    lines = [f"  {count} ranks {many}"] if count > 1 else []
    if _shown(count, verbose, size):
        what = "" if count > 1 else f" {one}"
        lines += [f"  Rank {rank}{what} -- {_where(seat)}" for rank, seat in of]
    return lines


def _where(seat: Seat) -> str:
    peer = seat.peer
    return f"GPU {peer.gpu} managed by process {peer.pid} on node {peer.host}"
