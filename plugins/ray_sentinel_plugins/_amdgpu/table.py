"""The driver's binary table ``gpu_metrics``: energy, and what holds the clocks down.

Layouts: the kernel's drivers/gpu/drm/amd/include/kgd_pp_interface.h. The header is the table's size
(16 bits), format and content revision (8 bits each); each revision has its own layout. A field that
the firmware does not fill has all bits set.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping

import msgspec

from ray_sentinel.api import Sample
from ray_sentinel_plugins import _gpu_metrics as gpu_metrics

# ``gpu_metrics`` 1.9, which describes itself: what ROCm 7 drivers give for MI300 and later.
#
# After the header and a count (32 bits) come attributes without padding: 64 bits that encode how
# many values follow (bits 0 to 9), what they are (10 to 19), their type (20 to 23) and their unit
# (24 to 31), then the values. A value that the firmware does not fill has all bits set. Source:
# the kernel's drivers/gpu/drm/amd/include/kgd_pp_interface.h and pm/swsmu/smu_cmn.h.

DESCRIBED = (1, 9)
ENERGY, ACCUMULATION = 7, 9
PROCHOT, POWER = 10, 11
THERMAL = (12, 13, 14)
"""Throttlers by the temperature of the socket, of the voltage regulators and of the memory."""
_TYPES = "BbHhIiQq"


def read_attributes(data: bytes) -> Mapping[int, tuple[int, ...]]:
    """The values of each attribute by its number, without those that are not filled.

    Raises ValueError if the table ends before its attributes do. An attribute of an unknown type
    has an unknown length: it and those behind it are left out.
    """
    try:
        (count,) = struct.unpack_from("<i", data, 4)
        at, found = 8, {}
        for _ in range(count):
            (code,) = struct.unpack_from("<Q", data, at)
            number, kind, values = code >> 10 & 0x3FF, code >> 20 & 0xF, code & 0x3FF
            if kind >= len(_TYPES):
                break
            form = f"<{values}{_TYPES[kind]}"
            filled = struct.unpack_from(form, data, at + 8)
            unfilled = (1 << 8 * struct.calcsize(_TYPES[kind])) - 1 if kind % 2 == 0 else -1
            if any(value != unfilled for value in filled):
                found[number] = filled
            at += 8 + struct.calcsize(form)
    except struct.error as error:
        raise ValueError(f"the table is cut off: {error}") from None
    return found


ENERGY_UNIT = 2.0**-16
"""Joules of one count of the energy counter (15.259 µJ)."""
ENERGY_AT = {(1, 4): 24, (1, 5): 88, (1, 6): 16, (1, 7): 24, (1, 8): 24}
"""Offset of ``energy_accumulator`` in each revision. Revision 1.3 does not say its unit; see
``MI200``."""
RESIDENCY_AT = {(1, 6): 36, (1, 7): 44, (1, 8): 44}
"""Offset in each revision of the throttlers' accumulated residencies: prochot, power, and three
thermal ones. The counter before them says how often they were looked at."""
STATUS_AT = {(1, 3): 112}
"""Offset in each revision of ``indep_throttle_status``, which has 16 bits for each kind of
throttler."""
LEAST = {(1, 3): 120, (1, 4): 32, (1, 5): 96, (1, 6): 56, (1, 7): 64, (1, 8): 64}
"""Bytes of each revision's table up to the last field that is read: drivers of one revision differ
in what they append."""
SILENT = {(1, 0), (1, 1), (1, 2), (2, 0), (2, 1), (2, 2), (2, 3), (2, 4), (3, 0)}
"""Revisions that are not read: those of early cards, where fields mean other things on each, and of
APUs."""
MI100 = frozenset({"0x7388", "0x738c", "0x738e", "0x7390"})
MI200 = frozenset({"0x7408", "0x740c", "0x740f", "0x7410"})
"""Device ids of cards with revision 1.3 whose firmware counts energy in ``ENERGY_UNIT``. The
firmware of MI100 seems to count joules, that of Navi 21 millijoules."""
MI200_ENERGY_AT = 24
KINDS = ("power", "current", "thermal", "other")
THERMAL_BITS, HOTSPOT = 0xFFFF << 32, 1 << 36
"""The thermal bits of ``indep_throttle_status``, and the bit of the hot spot. The driver sets a
Radeon's bits from how many percent each throttler takes; firmware of RDNA 3 and 4 never says 0
for the hot spot, even if the card is idle and cold. On Instinct cards the bits are the
firmware's own."""
_U32, _U64 = (1 << 32) - 1, (1 << 64) - 1
_NEVER = 1 << 16


class MetricsTable(msgspec.Struct, frozen=True, kw_only=True):
    """What was found in one table."""

    joules: float | None = None
    throttled: dict[str, bool] = {}
    """Whether each reason throttles the GPU now, if the table says so."""
    residency: dict[str, int] = {}
    """How long each reason has throttled the GPU, if the table accumulates it."""


def parse(data: bytes, device: str) -> MetricsTable | None:
    """The table of a card with that device id (``0x740f``), or None if it is of a revision that
    we do not know, or not whole."""
    if len(data) < 4:
        return None
    size, *revision = struct.unpack_from("<HBB", data)
    version = (revision[0], revision[1])
    if len(data) < size:
        return None
    if version in SILENT:
        return MetricsTable()
    if version == DESCRIBED:
        return _described(data[:size])
    if size < LEAST.get(version, _NEVER):
        return None
    at = MI200_ENERGY_AT if version == (1, 3) and device in MI200 else ENERGY_AT.get(version)
    ticks = struct.unpack_from("<Q", data, at)[0] if at is not None else _U64
    return MetricsTable(
        joules=None if ticks == _U64 else ticks * ENERGY_UNIT,
        throttled=_status(data, STATUS_AT.get(version), device in MI100 | MI200),
        residency=_residency(data, RESIDENCY_AT.get(version)),
    )


def _described(data: bytes) -> MetricsTable | None:
    try:
        found = read_attributes(data)
    except ValueError:
        return None
    energy = found.get(ENERGY)
    looks, prochot, power, *thermal = (
        found.get(number, (None,))[0]
        for number in (
            ACCUMULATION,
            PROCHOT,
            POWER,
            *THERMAL,
        )
    )
    return MetricsTable(
        joules=energy[0] * ENERGY_UNIT if energy else None,
        residency=_grown(looks, prochot, power, thermal),
    )


def _status(data: bytes, at: int | None, trusted: bool) -> dict[str, bool]:
    if at is None or (mask := struct.unpack_from("<Q", data, at)[0]) == _U64:
        return {}
    found = {kind: bool(mask >> 16 * i & 0xFFFF) for i, kind in enumerate(KINDS)}
    if mask & THERMAL_BITS == HOTSPOT and not trusted:
        del found["thermal"]
    return found


def _residency(data: bytes, at: int | None) -> dict[str, int]:
    if at is None:
        return {}
    fields = struct.unpack_from("<6I", data, at - 4)
    looks, prochot, power, *thermal = (None if field == _U32 else field for field in fields)
    return _grown(looks, prochot, power, thermal)


def _grown(
    looks: int | None, prochot: int | None, power: int | None, thermal: list[int | None]
) -> dict[str, int]:
    """The counters that grow while a throttler is at work, by reason. Some drivers fill in the
    counter of all looks for some throttlers, even on an idle card, as if these had been at work
    without a pause since the start: such reasons are left out."""
    found = {"prochot": [prochot], "power": [power], "thermal": thermal}
    return {
        reason: sum(total for total in totals if total is not None)
        for reason, totals in found.items()
        if None not in totals and not (looks and looks in totals)
    }


def samples(found: MetricsTable, before: MetricsTable | None, gpu: str) -> Iterator[Sample]:
    """The series of one GPU. Where the table only accumulates, a reason holds if it has grown since
    the collection ``before``."""
    if found.joules is not None:
        yield gpu_metrics.ENERGY(found.joules, gpu)
    for reason, held in found.throttled.items():
        yield gpu_metrics.THROTTLE(int(held), gpu, reason)
    for reason, total in found.residency.items():
        earlier = before.residency.get(reason) if before is not None else None
        if earlier is not None:
            yield gpu_metrics.THROTTLE(int(total != earlier), gpu, reason)
