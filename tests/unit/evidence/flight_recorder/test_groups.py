"""Groups that their members name and number differently."""

from __future__ import annotations

from typing import Any

from ray_sentinel.evidence.flight_recorder.dump import RankDump
from ray_sentinel.evidence.flight_recorder.entry import Entry
from ray_sentinel.evidence.flight_recorder.groups import format_ranks, identify
from ray_sentinel.evidence.flight_recorder.tables import GroupConfig, GroupStatus


def dump(rank: int, configs: list[tuple[str, str, Any]], **fields: Any) -> RankDump:
    """A dump with these (name, description, ranks)."""
    return RankDump(
        rank=rank,
        configs={name: GroupConfig(name, desc, ranks) for name, desc, ranks in configs},
        status=fields.get("status", {}),
        pending=fields.get("pending", []),
        last_done={},
        counts={},
        from_start=False,
        first_record=None,
    )


def entry(pg: int, name: str, desc: str, record: int = 0) -> Entry:
    return Entry(
        record=record,
        pg=pg,
        group=(name, desc),
        p2p=False,
        collective_seq=1,
        p2p_seq=0,
        op_id=1,
        op="all_reduce",
    )


def members(dumps: list[RankDump]) -> list[tuple[str, tuple[int, ...]]]:
    found = identify({d.rank: d for d in dumps})
    return sorted((group.desc, group.members) for group in found.groups)


def test_one_name_and_one_list_of_ranks_is_one_group() -> None:
    pair = ("3", "TENSOR", (0, 1))
    assert members([dump(0, [pair]), dump(1, [pair])]) == [("TENSOR", (0, 1))]


def test_colliding_names_are_told_apart_by_ranks() -> None:
    dumps = [dump(0, [("tp", "TENSOR", (0, 1))]), dump(2, [("tp", "TENSOR", (2, 3))])]
    assert members(dumps) == [("TENSOR", (0, 1)), ("TENSOR", (2, 3))]


def test_different_names_of_one_group_are_joined_by_description_and_ranks() -> None:
    dumps = [dump(0, [("4", "TENSOR", (0, 1))]), dump(1, [("9", "TENSOR", (0, 1))])]
    assert members(dumps) == [("TENSOR", (0, 1))]


def test_two_groups_alike_stay_two() -> None:
    world = [("1", "undefined", (0, 1)), ("2", "undefined", (0, 1))]
    found = identify({0: dump(0, world), 1: dump(1, world)})
    assert len(found.groups) == 2
    assert len({group.kind for group in found.groups}) == 2


def test_two_groups_alike_with_own_names_are_matched_in_order_of_creation() -> None:
    one = dump(0, [("1", "a", (0, 1)), ("2", "a", (0, 1))], status={})
    other = dump(1, [("5", "a", (0, 1)), ("11", "a", (0, 1))])
    one.pending = [entry(0, "1", "a"), entry(1, "2", "a")]
    other.pending = [entry(0, "5", "a"), entry(1, "11", "a")]
    found = identify({0: one, 1: other})
    assert len(found.groups) == 2
    assert found.by_pg[0] == found.by_pg[1]


def test_sister_groups_are_of_one_kind() -> None:
    dumps = [
        dump(0, [("1", "TENSOR", (0, 1)), ("3", "DATA", (0, 2))]),
        dump(3, [("2", "TENSOR", (2, 3)), ("4", "DATA", (1, 3))]),
    ]
    kinds = {group.kind for group in identify({d.rank: d for d in dumps}).groups}
    assert len(kinds) == 2


def test_groups_without_ranks_have_those_seen_in_them() -> None:
    dumps = {rank: dump(rank, []) for rank in range(4)}
    dumps[1].pending = [entry(0, "0", "default_pg"), entry(1, "7", "undefined", 1)]
    dumps[3].pending = [entry(0, "0", "default_pg"), entry(2, "7", "undefined", 1)]
    found = identify(dumps)
    assert {(group.members, group.closed) for group in found.groups} == {
        ((0, 1, 2, 3), True),
        ((1, 3), False),
    }


def test_status_without_entries_is_tied_by_the_order_of_creation() -> None:
    configs = [("0", "default_pg", (0, 1)), ("12", "B", (0, 1)), ("5", "A", (0, 1))]
    status = {0: GroupStatus(3, 3), 4: GroupStatus(8, 8), 9: GroupStatus(2, 2)}
    found = identify({0: dump(0, configs, status=status), 1: dump(1, configs)})
    descs = {pg: found.groups[ident].desc for pg, ident in found.by_pg[0].items()}
    assert descs == {0: "default_pg", 4: "A", 9: "B"}


def test_known_ties_bound_the_alignment() -> None:
    configs = [("0", "W", (0, 1)), ("3", "A", (0, 1)), ("6", "B", (0, 1)), ("9", "C", (0, 1))]
    status = {0: GroupStatus(1, 1), 2: GroupStatus(1, 1), 5: GroupStatus(1, 1)}
    one = dump(0, configs, status=status, pending=[entry(5, "9", "C")])
    found = identify({0: one, 1: dump(1, configs)})
    descs = {pg: found.groups[ident].desc for pg, ident in found.by_pg[0].items()}
    # Two numbers lie between groups of which three remain: which is which cannot be known.
    assert descs == {5: "C"}


def test_hashed_names_are_tied_by_ranks_that_created_groups_alike() -> None:
    def configs(first: int) -> list[tuple[str, str, Any]]:
        return [
            ("0", "default_pg", (0, 1, 2, 3)),
            (f"f{first}e9", "TENSOR", (first, first + 1)),
            (f"a{first}07", "DATA", (first % 2, first % 2 + 2)),
        ]

    status = {0: GroupStatus(4, 4), 1: GroupStatus(9, 9), 2: GroupStatus(5, 5)}
    one = dump(0, configs(0), status=status)
    one.pending = [
        entry(0, "0", "default_pg"),
        entry(1, "f0e9", "TENSOR"),
        entry(2, "a007", "DATA"),
    ]
    silent = dump(2, configs(2), status=status)
    found = identify({0: one, 2: silent})
    descs = {pg: found.groups[ident].desc for pg, ident in found.by_pg[2].items()}
    assert descs[1] == "TENSOR"


def test_ranks_are_said_in_runs() -> None:
    assert format_ranks([3, 1, 2, 8]) == "1-3,8"
    assert format_ranks(list(range(0, 60, 2)), most=2) == "0,2,... 30 in all"
