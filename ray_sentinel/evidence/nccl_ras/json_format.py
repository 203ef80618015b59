"""The JSON output of ``ncclras -f json`` (NCCL 2.28.7 and later; ``src/ras/client_support.cc``).

The states are derived as NCCL's own text output derives them from the same fields: the abort flag
first, then finalize or destroy, then ``init_state``.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ray_sentinel.evidence.nccl_ras.lenient_json import CUT, Document
from ray_sentinel.evidence.nccl_ras.poll import (
    ERRORS,
    IN_PROGRESS,
    SUCCESS,
    Communicator,
    Member,
    Poll,
    RasProcess,
    State,
    bare_hash,
)

MOST_SECONDS = 1e9
"""Seconds that a collection of answers cannot take; a number this large is damage and left out."""
MOST_RANKS = 1 << 20
"""Number that the ranks of a communicator do not reach; a size or rank this large is damage."""
BEYOND = 1 << 63
"""Number that no count of NCCL reaches: it would be damage, and MessagePack could not hold it."""


def is_status(value: dict[str, Any]) -> bool:
    """Whether a JSON object is an answer to STATUS."""
    return isinstance(value.get("communicators"), list) or bool(
        {"nccl_version", "rccl_version"} & value.keys()
    )


def is_event(value: dict[str, Any]) -> bool:
    """Whether a JSON object is a line of monitoring mode."""
    return isinstance(value.get("event"), str) and isinstance(value.get("peer"), dict)


def poll_of(document: Document, name: str = "") -> Poll:
    """The poll in an answer to STATUS. ``problems`` says what was not understood."""
    value = document.value
    problems: list[str] = []
    if document.cut:
        problems.append(f"{name or 'the output'} is cut: its last communicator is read in part")
    elif document.repaired:
        problems.append(
            f"{name or 'the output'} is not valid JSON (NCCL 2.28.9 leaves out a comma): repaired"
        )
    found = [
        communicator
        for number, raw in enumerate(_dicts(value.get("communicators")))
        if (communicator := _communicator(raw, number, problems)) is not None
    ]
    declared = _count(value.get("communicators_count"))
    if declared is not None and declared > len(found) and not document.cut:
        problems.append(f"{declared} communicators are announced, {len(found)} could be read")
    ras = value.get("ras")
    ras = ras if isinstance(ras, dict) else {}
    seconds = ras.get("collection_time_sec")
    return Poll(
        name=name,
        library="RCCL" if "rccl_version" in value else "NCCL",
        version=str(value.get("nccl_version") or value.get("rccl_version") or "")[:64],
        timestamp=str(value.get("timestamp") or "")[:32],
        communicators=tuple(found),
        dead=_processes(found, "DEAD"),
        missing=_processes(found, "UNRESPONSIVE"),
        dead_count=len(_processes(found, "DEAD")),
        missing_count=len(_processes(found, "UNRESPONSIVE")),
        seconds=float(seconds)
        if isinstance(seconds, (int, float)) and 0 <= seconds < MOST_SECONDS
        else None,
        timeouts=_count(ras.get("timeouts_count")) or 0,
        cut=document.cut,
        problems=tuple(problems),
    )


def death_of(value: dict[str, Any]) -> RasProcess | None:
    """The process that a monitoring event reports dead; None for other events."""
    peer = value["peer"]
    host, pid = peer.get("host"), _count(peer.get("pid"))
    if value["event"] != "PEER_DEAD" or not isinstance(host, str) or pid is None:
        return None
    devices = peer.get("nvml_devs")
    gpus = map(_count, devices) if isinstance(devices, list) else ()
    return RasProcess(host=host, pid=pid, gpus=tuple(gpu for gpu in gpus if gpu is not None))


def _communicator(raw: dict[str, Any], number: int, problems: list[str]) -> Communicator | None:
    name = bare_hash(str(raw.get("hash") or ""))
    secondary = str(raw.get("secondary_hash") or "" if name else f"#{number}").lower()
    present = [_present(item) for item in _dicts(raw.get("ranks"))]
    absent = [_absent(item) for item in _dicts(raw.get("missing_ranks"))]
    seen: dict[int, Member] = {}
    doubtful = 0
    size = _count(raw.get("size")) or 0
    for member in (*present, *absent):
        if member is None or member.rank in seen or (size and member.rank >= size):
            doubtful += 1
        else:
            seen[member.rank] = member
    size = max(size, _count(raw.get("ranks_count")) or 0, len(seen))
    if not seen and not size:
        return None
    cut = CUT in raw
    if doubtful and not cut:
        problems.append(
            f"communicator {name or '?'}: {doubtful} ranks make no sense (a communicator that is "
            "just being made, or NCCL's own error) and are left out"
        )
    whole = present and not cut and not doubtful and size < MOST_RANKS
    return Communicator(
        hash=name,
        secondary=secondary,
        size=size,
        members=tuple(seen[rank] for rank in sorted(seen)),
        unknown=max(0, size - len(seen)) if size < MOST_RANKS else 0,
        unlisted=tuple(rank for rank in range(size) if rank not in seen) if whole else (),
    )


def _present(raw: dict[str, Any]) -> Member | None:
    rank = _count(raw.get("rank"))
    status = raw.get("status")
    if rank is None or rank >= MOST_RANKS or CUT in raw:
        return None
    counts = raw.get("collective_counts")
    flags = status if isinstance(status, dict) else {}
    return Member(
        rank=rank,
        **_place(raw),
        state=_state(flags) if flags else "",
        error=_error(flags),
        counts=_counts(counts) if isinstance(counts, dict) else {},
    )


def _absent(raw: dict[str, Any]) -> Member | None:
    rank = _count(raw.get("rank"))
    if rank is None or rank >= MOST_RANKS or CUT in raw:
        return None
    status = raw.get("status")
    # Some tools that pass the output on move the flags out of "status".
    flags = status if isinstance(status, dict) else raw
    if flags.get("considered_dead") is True:
        state: State = "DEAD"
    elif flags.get("unresponsive") is True:
        state = "UNRESPONSIVE"
    elif "unresponsive" in flags or "considered_dead" in flags:
        state = "NOCOMM"
    else:
        state = ""
    return Member(rank=rank, **_place(raw), state=state)


def _place(raw: dict[str, Any]) -> dict[str, Any]:
    host, pid = raw.get("host"), _count(raw.get("pid"))
    gpu = _count(raw.get("nvml_dev"))
    known = isinstance(host, str) and host not in ("", "unknown")
    return {
        "host": host if known else "",
        "pid": pid if pid else None,
        "gpu": gpu if gpu is not None else _count(raw.get("cuda_dev")),
    }


def _state(flags: dict[str, Any]) -> State:
    if flags.get("abort_flag") is True:
        return "ABORT"
    if flags.get("finalize_called") is True or flags.get("destroy_flag") is True:
        return "FINALIZE"
    return "RUNNING" if flags.get("init_state") in (None, SUCCESS) else "INIT"


def _error(flags: dict[str, Any]) -> str:
    for field in ("init_state", "async_error"):
        code = flags.get(field)
        if isinstance(code, int) and code not in (SUCCESS, IN_PROGRESS):
            return ERRORS.get(code, f"error {code}")
    return ""


def _counts(raw: dict[str, Any]) -> dict[str, int]:
    found = {name: _count(value) for name, value in raw.items()}
    return {name: value for name, value in found.items() if value is not None}


def _processes(communicators: list[Communicator], state: State) -> tuple[RasProcess, ...]:
    gpus: dict[tuple[str, int], set[int]] = {}
    for communicator in communicators:
        for member in communicator.members:
            if member.state == state and member.place is not None:
                host, pid, gpu = member.place
                gpus.setdefault((host, pid), set()).update({gpu} - {-1})
    return tuple(
        RasProcess(host=host, pid=pid, gpus=tuple(sorted(found)))
        for (host, pid), found in sorted(gpus.items())
    )


def _dicts(value: Any) -> Iterator[dict[str, Any]]:
    for item in value if isinstance(value, list) else ():
        if isinstance(item, dict):
            yield item


def _count(value: Any) -> int | None:
    """A number that counts something; None for anything else, also for true and false."""
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < BEYOND:
        return None
    return value
