"""Hits in the order of what happened, also those that no date stands near."""

from __future__ import annotations

from ray_sentinel.evidence.logs.causes import in_order
from ray_sentinel.evidence.logs.errors.signatures import Signature
from ray_sentinel.evidence.logs.records import Hit

_ERROR = Signature(id="python-exception", kind="python-exception")


def hit(file: int, offset: int, time: float | None) -> Hit:
    return Hit(file=file, offset=offset, text="", signature=_ERROR, time=time)


def test_what_no_date_stands_before_does_not_come_before_other_files_dates() -> None:
    undated, dated = hit(0, 9000, None), hit(1, 50, 100.0)
    assert in_order([undated, dated]) == [dated, undated]


def test_an_undated_hit_comes_before_what_its_own_file_dates_later() -> None:
    undated, later, other = hit(1, 10, None), hit(1, 500, 200.0), hit(0, 70, 100.0)
    assert in_order([later, undated, other]) == [other, undated, later]
