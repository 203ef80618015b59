import pytest

from ray_sentinel.progress.ownership import is_default_owner, owns


@pytest.mark.parametrize(
    ("ancestors", "own", "peers", "default", "expected"),
    [
        ((9, 5, 1), 5, {5, 6}, False, True),
        ((9, 6, 1), 5, {5, 6}, True, False),
        ((9, 1), 5, {5, 6}, True, True),
        ((9, 1), 5, {5, 6}, False, False),
        # A raylet that has no agent of ours: its ranks are nobody's else.
        ((9, 7, 1), 5, {5, 6}, True, True),
        # Ray inside of a Ray job: the nearest one decides.
        ((9, 6, 5, 1), 5, {5, 6}, True, False),
        ((), None, set(), True, True),
    ],
)
def test_owns(ancestors, own, peers, default, expected):
    assert owns(ancestors, own, peers, default) is expected


def test_exactly_one_agent_takes_the_orphans():
    raylets = {30, 10, 20}
    assert [raylet for raylet in raylets if is_default_owner(raylet, raylets)] == [10]
    assert is_default_owner(30, ())
    assert is_default_owner(None, raylets)
