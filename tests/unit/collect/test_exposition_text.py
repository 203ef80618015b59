"""What script plugins print."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ray_sentinel.collect.exposition_text import MAX_PROBLEMS, MAX_STATE, parse

TEXT = r"""
# HELP disk_errors_total Errors\nof disks.
# TYPE disk_errors_total counter
disk_errors_total{disk="sda",note="a \"b\" \\ c\nd"} 3
disk_errors_total{disk="sdb"} 4.5e3
# a comment
# TYPE temperature gauge
temperature NaN
plain +Inf
"""


def test_families_with_kinds_helps_and_labels() -> None:
    output = parse(TEXT)
    assert output.problems == ()
    families = {family.metric.name: family for family in output.families}
    errors = families["disk_errors_total"]
    assert (errors.metric.kind, errors.metric.help) == ("counter", "Errors\nof disks.")
    assert errors.samples[0].labels == (("disk", "sda"), ("note", 'a "b" \\ c\nd'))
    assert errors.samples[1].value == 4500.0
    assert families["temperature"].metric.kind == "gauge"
    assert families["plain"].metric.kind == "untyped"
    assert families["plain"].samples[0].value == float("inf")


def test_garbage_is_told_by_line_and_costs_only_its_line() -> None:
    output = parse("good 1\nthis is garbage\n{}\nalso_good 2\n}{ 1\n")
    assert [family.metric.name for family in output.families] == ["good", "also_good"]
    assert [problem.split(":")[0] for problem in output.problems] == ["line 2", "line 3", "line 5"]


def test_a_timestamp_is_not_taken() -> None:
    output = parse("old 1 1700000000000\n")
    assert output.families[0].samples[0].timestamp is None
    assert "timestamp" in output.problems[0]


def test_histograms_pass_as_their_series() -> None:
    output = parse('# TYPE h histogram\nh_bucket{le="1"} 2\nh_sum 3\nh_count 2\n')
    kinds = {family.metric.name: family.metric.kind for family in output.families}
    assert kinds == {"h_bucket": "untyped", "h_sum": "untyped", "h_count": "untyped"}


def test_a_counter_named_as_openmetrics_does() -> None:
    output = parse("# TYPE requests counter\nrequests_total 3\n")
    assert output.families[0].metric.kind == "counter"
    assert output.families[0].metric.name == "requests_total"


@pytest.mark.parametrize(
    ("text", "state", "nothing_new"),
    [
        ("# STATE abc def\n", "abc def", True),
        ("\n# STATE\n\n", "", True),
        ("x 1\n# STATE 5", "5", False),
        ("# STATE 5\nx 1\n", None, False),
        ("x 1\n", None, False),
        ("", None, False),
    ],
)
def test_the_last_line_may_be_the_state(text: str, state: str | None, nothing_new: bool) -> None:
    output = parse(text)
    assert (output.state, output.nothing_new) == (state, nothing_new)


def test_the_state_is_bounded() -> None:
    state = parse("# STATE " + "x" * 100_000).state
    assert state is not None
    assert len(state) == MAX_STATE


@given(st.text())
def test_no_text_is_too_strange(text: str) -> None:
    parse(text)
    parse('a{b="' + text + '"} 1\n')


def test_garbage_is_named_up_to_a_bound() -> None:
    output = parse("x\n" * 5000 + "good 1\n")
    assert len(output.problems) == MAX_PROBLEMS
    assert [family.metric.name for family in output.families] == ["good"]
