"""Functions whose names say that they take long."""

from __future__ import annotations

import pytest

from ray_sentinel.engine.activities import takes_long
from ray_sentinel.model.identity import ProcessId
from ray_sentinel.model.stacks import StackFact
from tests.support.engine_sim import Sim


def at(place: str) -> StackFact:
    return StackFact(process=ProcessId("h", 1, 1), signature=("main (train.py:3)", place))


@pytest.mark.parametrize(
    "place",
    [
        "save_checkpoint (train.py:7)",
        "Trainer.save_model (mine/loop.py:7)",
        "evaluate (train.py:9)",
        "run_validation (train.py:9)",
        "validation_epoch (train.py:9)",
        "Runner.load_weights (a.py:1)",
        "write_ckpt (a.py:1)",
    ],
)
def test_a_name_tells_long_work(place: str) -> None:
    assert takes_long(at(place))


@pytest.mark.parametrize(
    "place",
    [
        "train_step (train.py:7)",
        "checkpoint (torch/utils/checkpoint.py:500)",
        "load_batch (data.py:3)",
        "read_shard (data.py:3)",
        "retrieval (a.py:1)",
        "state (a.py:1)",
        "next_batch (evaluate.py:1)",
    ],
)
def test_other_names_tell_nothing(place: str) -> None:
    assert not takes_long(at(place))


def test_a_checkpoint_that_only_its_name_shows_is_given_time() -> None:
    sim = Sim()
    sim.run(30)
    sim.stick(0, where=("main (train.py:1)", "save_checkpoint (train.py:40)"))
    sim.run(35)
    sim.rank(0).stuck = False
    sim.run(20)
    assert sim.incidents() == ()


def test_a_checkpoint_that_keeps_the_gil_is_given_time() -> None:
    """Pickling a large state keeps it for seconds, and the companion thread proves that."""
    sim = Sim()
    sim.run(30)
    saves = ("main (train.py:1)", "save_checkpoint (train.py:40)")
    sim.stick(1, interpreter="gil-held", where=saves, activity="unknown")
    sim.run(10)
    sim.rank(1).stuck, sim.rank(1).interpreter = False, "runs"
    sim.run(20)
    assert sim.incidents() == ()
