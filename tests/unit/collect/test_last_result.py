"""What a collector last reported holds for a while, and no longer."""

from __future__ import annotations

import math

from ray_sentinel.collect.protocol import RunAnswer
from ray_sentinel.collect.version import KEPT_INTERVALS, LastResult
from ray_sentinel.model.metrics import Family, Metric

LOAD = Metric("load", "gauge", "Load.")
FAMILIES = (Family(LOAD, (LOAD(1.0),)),)


def test_a_good_run_is_served_until_it_is_old() -> None:
    last = LastResult()
    assert last.expiry(10.0) == math.inf
    last.answered(RunAnswer(sequence=1, outcome="ok", families=FAMILIES), 100.0, 1.7e9)
    assert (last.success, last.families, last.last_success) == (True, FAMILIES, 1.7e9)
    assert last.expiry(10.0) == 100.0 + KEPT_INTERVALS * 10.0


def test_nothing_new_keeps_what_was_there_even_after_it_was_dropped() -> None:
    last = LastResult()
    last.answered(RunAnswer(sequence=1, outcome="ok", families=FAMILIES), 100.0, 1.7e9)
    last.families = ()
    last.answered(RunAnswer(sequence=2, outcome="nodata"), 200.0, 1.7e9 + 100.0)
    assert last.families == FAMILIES
    assert last.expiry(10.0) == 200.0 + KEPT_INTERVALS * 10.0


def test_what_is_not_there_any_more_is_dropped() -> None:
    last = LastResult()
    last.answered(RunAnswer(sequence=1, outcome="ok", families=FAMILIES), 100.0, 1.7e9)
    last.answered(RunAnswer(sequence=2, outcome="absent"), 110.0, 1.7e9 + 10.0)
    assert (last.success, last.families) == (True, ())
    last.answered(RunAnswer(sequence=3, outcome="nodata"), 120.0, 1.7e9 + 20.0)
    assert last.families == ()


def test_a_failure_keeps_the_families_and_their_age() -> None:
    last = LastResult()
    last.answered(RunAnswer(sequence=1, outcome="ok", families=FAMILIES), 100.0, 1.7e9)
    last.answered(
        RunAnswer(sequence=2, outcome="error", message="no such file"), 105.0, 1.7e9 + 5.0
    )
    assert (last.success, last.families, last.complaint()) == (
        False,
        FAMILIES,
        "no such file",
    )
    assert last.expiry(10.0) == 100.0 + KEPT_INTERVALS * 10.0


def test_left_out_is_no_failure_and_serves_nothing() -> None:
    last = LastResult()
    last.answered(RunAnswer(sequence=1, outcome="skip", message="no GPU"), 100.0, 1.7e9)
    assert (last.tried, last.success, last.families, last.complaint()) == (
        True,
        None,
        (),
        "",
    )


def test_a_new_version_with_nothing_new_takes_over_what_the_old_one_said() -> None:
    old, new = LastResult(), LastResult()
    old.answered(RunAnswer(sequence=1, outcome="ok", families=FAMILIES), 100.0, 1.7e9)
    new.answered(RunAnswer(sequence=1, outcome="nodata"), 110.0, 1.7e9 + 10.0)
    new.inherit(old)
    assert new.families == FAMILIES
    new.answered(RunAnswer(sequence=2, outcome="ok"), 120.0, 1.7e9 + 20.0)
    new.inherit(old)
    assert new.families == ()


def test_the_first_problem_stands_for_all() -> None:
    last = LastResult()
    last.answered(RunAnswer(sequence=1, outcome="ok", problems=("a", "b", "c")), 100.0, 1.7e9)
    assert last.complaint() == "a (and 2 more)"


def test_what_was_told_holds_through_a_pause() -> None:
    last = LastResult()
    last.answered(RunAnswer(sequence=1, outcome="ok", families=FAMILIES, pause=10.0), 100.0, 1.7e9)
    assert last.expiry(2.0) == 100.0 + 10.0 + 3 * 2.0
