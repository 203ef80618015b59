"""A host that leaves is to blame for a stop only if it left when the job stopped."""

from __future__ import annotations

import pytest

from ray_sentinel.diagnose.detect import series_end
from ray_sentinel.diagnose.examine import examine
from tests.support.diagnosis import case_of_source
from tests.support.plain_job import Phase, watched

IDLE = {"watts": 100.0, "spread": 2.0, "util": 0.0}
POLLING = {"watts": 150.0, "spread": 3.0, "util": 99.0}


@pytest.mark.parametrize(
    ("phases", "until"),
    [
        # A pause at the start, and long after it one exporter ends a little before the others.
        ((Phase(600), Phase(120, steps=False, **IDLE), Phase(7200)), {2: 7850.0}),
        # The job goes on with a host less.
        ((Phase(600), Phase(120, steps=False, **IDLE), Phase(7200)), {3: 4000.0}),
        # It was done, and a host is given back ten minutes later.
        ((Phase(3600), Phase(1800, steps=False, **IDLE)), {1: 4800.0}),
    ],
)
def test_who_leaves_later_did_not_stop_the_job(
    phases: tuple[Phase, ...], until: dict[int, float]
) -> None:
    found = examine(watched(phases, until=until)).diagnosis
    assert found.culprits == ()
    assert found.outcome != "found"


def test_who_leaves_as_it_stops_is_named() -> None:
    phases = (Phase(3600), Phase(1800, steps=False, **POLLING))
    found = examine(watched(phases, until={1: 3590.0})).diagnosis
    assert (found.cause, [one.host for one in found.culprits]) == ("node-lost", ["n1"])


def test_a_host_that_is_read_more_rarely_is_not_lost() -> None:
    phases = (Phase(3600), Phase(1870, steps=False, **POLLING))
    source = watched(phases, every={1: 120.0}, hosts=8)
    assert series_end.hosts(case_of_source(source)) == ()
    assert examine(source).diagnosis.cause == "busy-wait"


def test_one_that_is_read_rarely_can_be_lost_too() -> None:
    phases = (Phase(3600), Phase(1870, steps=False, **POLLING))
    source = watched(phases, every={1: 120.0}, until={1: 3600.0}, hosts=8)
    assert [one.host for one in series_end.hosts(case_of_source(source))] == ["n1"]
