"""Many circles of ranks in the same roles: what it takes to judge them."""

from __future__ import annotations

import json
from collections.abc import Iterable

from ray_sentinel.evidence.flight_recorder.circles import Circles
from ray_sentinel.evidence.flight_recorder.peer_roles import Equals, Role
from ray_sentinel.evidence.flight_recorder.reduced import read
from ray_sentinel.evidence.flight_recorder.waits import Waits
from ray_sentinel.evidence.flight_recorder.world import World


def hung_in_a_pair(rank: int) -> bytes:
    """The dump of a rank that waits with its neighbour in their fourth call."""
    first, group = rank // 2 * 2, str(rank // 2)
    entry = {
        "record_id": 9,
        "pg_id": rank // 2,
        "process_group": [group, "tp"],
        "collective_seq_id": 4,
        "p2p_seq_id": 0,
        "op_id": 4,
        "profiling_name": "nccl:all_reduce",
        "time_created_ns": 1,
        "input_sizes": [[4]],
        "output_sizes": [[4]],
        "input_dtypes": ["Float"],
        "output_dtypes": ["Float"],
        "state": "scheduled",
        "retired": False,
        "is_p2p": False,
    }
    dump = {
        "version": "2.9",
        "pg_config": {group: {"name": group, "desc": "tp", "ranks": str([first, first + 1])}},
        "pg_status": {
            group: {
                "last_enqueued_collective": 4,
                "last_started_collective": 3,
                "last_completed_collective": 3,
            }
        },
        "entries": [entry],
    }
    return json.dumps(dump).encode()


class CountedEquals(Equals):
    """Counts how often all ranks are compared."""

    compared = 0

    def odd_ones(self, roles: Iterable[Role]) -> list[int]:
        self.compared += 1
        return super().odd_ones(roles)


def test_circles_of_the_same_roles_are_compared_with_their_equals_once() -> None:
    world = World({rank: read(rank, hung_in_a_pair(rank)) for rank in range(32)})
    waits, equals = Waits(world), CountedEquals(world)
    circles = Circles(waits, equals)
    operations = [*waits.operations.values()]
    assert [operation.inside for operation in operations] == [[r, r + 1] for r in range(0, 32, 2)]
    assert not any(circles.judge(one.inside, [one]).culprits for one in operations)
    assert equals.compared == 1
