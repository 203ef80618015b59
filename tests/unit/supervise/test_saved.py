"""Which checkpoints came, and which is offered to start from."""

from __future__ import annotations

from pathlib import Path

from ray_sentinel.clock import FakeClock
from ray_sentinel.errors import UnreachableError
from ray_sentinel.evidence.checkpoints import Checkpoint as Saved
from ray_sentinel.evidence.checkpoints import CheckpointFacts
from ray_sentinel.supervise.actions import Choose
from ray_sentinel.supervise.course import Ledger
from ray_sentinel.supervise.policy import Checkpoint
from ray_sentinel.supervise.saved import Checkpoints


class Tier:
    """A folder of checkpoints whose steps a test sets; None where it cannot be listed."""

    def __init__(self, folder: Path = Path("/saved")) -> None:
        self.folder = folder
        self.facts: CheckpointFacts | None = CheckpointFacts()
        self.said: list[str] = []
        self.checkpoints = Checkpoints((folder,), self._scan, self.said.append, FakeClock(50.0))

    def save(self, step: int) -> str:
        """A whole checkpoint of a step, saved at that second; its path."""
        path = self.folder / f"step_{step}"
        path.mkdir()
        (path / "weights.bin").write_bytes(b"weights")
        one = Saved(step=step, path=path.name, layout="step", modified=float(step))
        before = self.facts.checkpoints if self.facts is not None else ()
        self.facts = CheckpointFacts(checkpoints=(*before, one))
        return str(path)

    def _scan(self, folder: Path) -> CheckpointFacts:
        if self.facts is None:
            raise UnreachableError(f"{folder} does not answer")
        return self.facts


def test_without_any_checkpoint_it_starts_from_the_beginning() -> None:
    tier = Tier()
    for attempt in (0, 1):
        offered = tier.checkpoints.offer(Choose(), Ledger(attempt=attempt))
        assert (offered.checkpoint, offered.problem) == (None, "")
    assert tier.checkpoints.later() is None
    assert tier.checkpoints.saved_at(()) is None


def test_where_none_is_left_that_loads_it_does_not_start_from_the_beginning() -> None:
    asked = Choose(without=frozenset({"/saved/step_5"}))
    offered = Tier().checkpoints.offer(asked, Ledger(attempt=1))
    assert offered.problem == "none of 1 checkpoints loads: /saved/step_5"


def test_checkpoints_that_have_vanished_are_not_taken_for_none() -> None:
    tier = Tier()
    tier.facts = None
    ledger = Ledger(attempt=1, checkpoint=Checkpoint(path="/saved/step_5", step=5, modified=1.0))
    problem = tier.checkpoints.offer(Choose(), ledger).problem
    assert tier.said == ["no checkpoint is taken from /saved does not answer"]
    assert "vanished: /saved does not answer" in problem
    assert tier.checkpoints.offer(Choose(), Ledger(attempt=1)).problem == ""


def test_each_later_checkpoint_is_told_once_and_the_best_is_offered(tmp_path: Path) -> None:
    tier = Tier(tmp_path)
    first = tier.save(5)
    told = tier.checkpoints.later()
    assert told is not None
    assert (told.path, told.step) == (first, 5)
    assert tier.checkpoints.later() is None
    second = tier.save(10)
    assert tier.checkpoints.later() is not None
    assert tier.checkpoints.saved_at(()) == 10.0
    assert tier.checkpoints.saved_at({second}) == 5.0
    offered = tier.checkpoints.offer(Choose(without=frozenset({second})), Ledger(attempt=1))
    assert (offered.time, offered.problem) == (50.0, "")
    assert offered.checkpoint is not None
    assert offered.checkpoint.path == first


def test_what_was_left_out_on_the_way_is_said(tmp_path: Path) -> None:
    tier = Tier(tmp_path)
    whole, cut = tier.save(5), tier.save(10)
    (Path(cut) / "weights.bin").write_bytes(b"")
    offered = tier.checkpoints.offer(Choose(), Ledger())
    assert offered.checkpoint is not None
    assert offered.checkpoint.path == whole
    assert tier.said == [f"left out: {cut}/weights.bin: is empty"]
