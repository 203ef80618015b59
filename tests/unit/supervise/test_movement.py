"""Whether an attempt goes on: output, steps and checkpoints, each against its limit."""

from __future__ import annotations

from ray_sentinel.supervise.attempt.movement import AttemptMovement
from ray_sentinel.supervise.policy import Policy


def test_movement() -> None:
    policy = Policy(stagnation_threshold=100, startup_threshold=500)
    moves = AttemptMovement(policy, 0.0)
    moves.spoke(400.0)
    assert moves.stagnates(899.0) == ""
    assert "no output" in moves.stagnates(901.0)
    assert moves.stepped(1, 950.0)
    assert moves.stepped(2, 960.0)
    assert not moves.stepped(2, 1000.0)
    assert moves.stagnates(1059.0) == ""
    assert "after step 2" in moves.stagnates(1061.0)
    moves.spoke(1050.0)
    assert moves.stagnates(1149.0) == "", "an evaluation prints, and makes no steps"
    assert moves.stagnates(1151.0) != ""
    for moment in range(1100, 1460, 50):
        moves.spoke(float(moment))
    assert moves.stagnates(1459.0) == ""
    assert "after step 2" in moves.stagnates(1461.0), "and so do some jobs that hang"
    moves.saved(1461.0)
    assert moves.stagnates(1500.0) == ""
    assert AttemptMovement(Policy(startup_threshold=0), 0.0).stagnates(1e9) == ""
