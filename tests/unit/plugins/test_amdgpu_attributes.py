"""The table of ROCm 7 drivers, which describes itself."""

from __future__ import annotations

import random
import struct

import pytest

from ray_sentinel_plugins._amdgpu import table

U16, S16, U32, U64 = 2, 3, 4, 6
SIZES = {U16: 2, U32: 4, U64: 8}

MI300X: tuple[tuple[int, int, int], ...] = (
    *((number, U16, 1) for number in range(6)),
    *((number, U64, 1) for number in (6, 7, 8)),
    *((number, U32, 1) for number in range(9, 16)),
    *((number, U16, 1) for number in range(16, 20)),
    *((number, U32, 1) for number in (20, 21)),
    *((number, U64, 1) for number in range(22, 27)),
    *((number, U32, 1) for number in (27, 28)),
    *((29, U64, 8), (30, U64, 8), (31, U16, 8), (32, U64, 1)),
    *((33, U16, 8), (34, U16, 4), (35, U16, 4), (36, U16, 4), (37, U16, 1), (39, U32, 1)),
    *((40, U32, 8), (41, U16, 40), (42, U16, 4), *((number, U64, 8) for number in range(43, 48))),
)
"""Number, type and count of what the driver gives for an MI300X, in its order."""


def made(
    given: dict[int, int], fields: tuple[tuple[int, int, int], ...] = MI300X, count: int = -1
) -> bytes:
    """A table in which only these attributes are filled."""
    body = b""
    for number, kind, values in fields:
        body += struct.pack("<Q", kind << 20 | number << 10 | values)
        size = SIZES.get(kind, 2)
        filled = given.get(number)
        body += (
            b"\xff" * size * values if filled is None else filled.to_bytes(size, "little") * values
        )
    whole = 8 + len(body)
    return struct.pack("<HBBi", whole, 1, 9, len(fields) if count < 0 else count) + body


LOAD = (
    {7: 3 << 16, 9: 55_257_356, 10: 0, 11: 749_905, 12: 0, 13: 0, 14: 0},
    {7: 4 << 16, 9: 55_262_364, 10: 0, 11: 754_247, 12: 0, 13: 0, 14: 0},
)
"""Counters of an MI300X at its power cap, five seconds apart, as its owner published them."""


def test_it_is_as_long_as_that_of_a_real_card() -> None:
    assert (len(MI300X), len(made({}))) == (47, 1150)


def test_a_card_at_its_power_cap_is_throttled_by_power_alone() -> None:
    first, second = (table.parse(made(given), "0x74a1") for given in LOAD)
    assert first is not None
    assert second is not None
    assert (first.joules, second.joules) == (3.0, 4.0)
    told = {s.labels[-1][1]: s.value for s in table.samples(second, first, "0") if s.labels[1:]}
    assert told == {"prochot": 0, "power": 1, "thermal": 0}


def test_what_is_not_filled_is_not_told() -> None:
    assert table.parse(made({}), "0x74a1") == table.MetricsTable()
    some = table.parse(made({10: 5, 12: 1}), "0x74a1")
    assert some == table.MetricsTable(residency={"prochot": 5}), (
        "one of three thermal ones is not enough"
    )


def test_later_drivers_may_use_wider_counters_and_other_attributes() -> None:
    fields = ((900, U16, 3), (7, U64, 1), (9, U64, 1), (10, U64, 1), (11, U64, 1))
    found = table.parse(made({900: 7, 7: 1 << 16, 9: 100, 10: 3, 11: 1 << 40}, fields), "")
    assert found == table.MetricsTable(joules=1.0, residency={"prochot": 3, "power": 1 << 40})


def test_behind_a_type_that_is_not_known_nothing_can_be_read() -> None:
    fields = ((7, U64, 1), (901, 9, 1), (11, U32, 1))
    assert dict(table.read_attributes(made({7: 1, 11: 4}, fields))) == {7: (1,)}


@pytest.mark.parametrize("cut", [5, 9, 17, 500, 1149])
def test_a_table_that_is_cut_off(cut: int) -> None:
    whole = made(LOAD[0])
    assert table.parse(whole[:cut], "") is None
    short = struct.pack("<H", cut) + whole[2:cut]
    assert table.parse(short, "") is None


def test_random_bytes_do_not_break_it() -> None:
    choose = random.Random(9)
    for _ in range(500):
        body = choose.randbytes(choose.randrange(4, 200))
        data = struct.pack("<HBB", 4 + len(body), 1, 9) + body
        assert isinstance(table.parse(data, ""), table.MetricsTable | None)
