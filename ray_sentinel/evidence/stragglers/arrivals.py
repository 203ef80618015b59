"""When each rank called each collective, from flight-recorder dumps of all ranks.

A dump tells for every collective its group, its number in it, and when the rank called it
(``time_created_ns``, wall clock). Where the recorder's timing is on (NCCL with
TORCH_NCCL_ENABLE_TIMING=1) it also tells how long the device was in it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import NamedTuple

import msgspec
import numpy as np
import numpy.typing as npt

from ray_sentinel.errors import InputError
from ray_sentinel.evidence.flight_recorder.entry import NEEDS_EVERYONE, Signature
from ray_sentinel.evidence.flight_recorder.reduced import operations

Floats = npt.NDArray[np.float64]

MOST_NANOSECONDS = 2**63
"""Number of nanoseconds that the recorder's clock, a signed number of 64 bits, cannot show; a value
this large is damage."""


class ArrivalTable(msgspec.Struct, kw_only=True, eq=False):
    """The collectives of one group that all of its ranks have recorded."""

    group: str
    ranks: tuple[int, ...]
    created: Floats
    """Unix seconds of each call: one row per collective, one column per rank."""
    durations: Floats | None = None
    """Seconds on the device, in the same order; 0 for all ranks in a collective that was not
    measured on all of them, and None where few were."""


class Call(NamedTuple):
    """One rank's call of a collective: when it was made, how long its device was in it (NaN if not
    measured), and what it does (operation, element counts, data types)."""

    created: float
    duration: float
    signature: Signature


Calls = dict[str, dict[int, dict[int, Call]]]
"""Group → rank → number in the group → call."""


def read(dumps: Mapping[int, bytes], names: Mapping[int, str]) -> tuple[Calls, list[str]]:
    """All collectives that need every rank. The second part says what could not be read."""
    calls: Calls = {}
    problems: list[str] = []
    known: dict[bytes, dict[str, dict[int, Call]]] = {}
    for rank in sorted(dumps):
        try:
            found = _read_once(dumps[rank], known)
        except InputError as error:
            problems.append(f"{names.get(rank, f'dump {rank}')} {error}")
            continue
        for group, by_number in found.items():
            calls.setdefault(group, {})[rank] = by_number
    return calls, problems


def tables(calls: Calls) -> list[ArrivalTable]:
    """Every group with enough collectives in common; the most informative one comes first."""
    found = [table for group, of in calls.items() if (table := _table(group, of)) is not None]
    return sorted(found, key=lambda t: (-len(t.ranks), -len(t.created), t.group))


def _read_once(
    data: bytes, known: dict[bytes, dict[str, dict[int, Call]]]
) -> dict[str, dict[int, Call]]:
    """The calls in a dump, by group. Ranks of which a log names one dump share what is in it."""
    digest = hashlib.sha256(data).digest()
    if digest not in known:
        known[digest] = _calls(data)
    return known[digest]


def _calls(data: bytes) -> dict[str, dict[int, Call]]:
    found: dict[str, dict[int, Call]] = {}
    for entry, milliseconds in operations(data):
        if entry.p2p or entry.op not in NEEDS_EVERYONE:
            continue
        if entry.created_ns is not None and 0 < entry.created_ns < MOST_NANOSECONDS:
            calls = found.setdefault("/".join(entry.group), {})
            calls[entry.collective_seq] = Call(
                entry.created_ns / 1e9, _duration(milliseconds), entry.signature()
            )
    return found


def _duration(milliseconds: float) -> float:
    return milliseconds / 1000.0 if 0 < milliseconds < MOST_NANOSECONDS else float("nan")


def _table(group: str, of: dict[int, dict[int, Call]]) -> ArrivalTable | None:
    if len(of) < 2:
        return None
    ranks = tuple(sorted(of))
    shared = sorted(set.intersection(*(set(calls) for calls in of.values())))
    if len(shared) < 2:
        return None
    both = np.array([[of[rank][seq][:2] for rank in ranks] for seq in shared], dtype=np.float64)
    # A rank that alone was not measured would seem never to wait.
    measured = np.asarray(np.isfinite(both[:, :, 1]).all(axis=1))
    durations = np.where(measured[:, None], both[:, :, 1], 0.0) if measured.mean() > 0.8 else None
    return ArrivalTable(group=group, ranks=ranks, created=both[:, :, 0], durations=durations)
