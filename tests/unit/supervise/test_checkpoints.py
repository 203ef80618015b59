"""Which checkpoints came, and which is offered to start from."""

from __future__ import annotations

from pathlib import Path

from ray_sentinel.clock import FakeClock
from ray_sentinel.errors import UnreachableError
from ray_sentinel.evidence.checkpoints import Checkpoint as Saved
from ray_sentinel.evidence.checkpoints import CheckpointFacts
from ray_sentinel.supervise.actions import Choose
from ray_sentinel.supervise.checkpoints import Checkpoints
from ray_sentinel.supervise.policy import ResumePoint
from ray_sentinel.supervise.restart_state_machine import SupervisionState


class Tier:
    """A folder of checkpoints whose steps a test sets; None where it cannot be listed."""

    def __init__(self, folder: Path = Path("/saved")) -> None:
        self.folder = folder
        self.facts: CheckpointFacts | None = CheckpointFacts()
        self.said: list[str] = []
        self.checkpoints = Checkpoints((folder,), self._scan, self.said.append, FakeClock(50.0))

    def save(self, step: int, at: float | None = None) -> ResumePoint:
        """A whole checkpoint of a step, saved at that second unless told otherwise."""
        path = self.folder / f"step_{step}"
        path.mkdir(exist_ok=True)
        (path / "weights.bin").write_bytes(b"weights")
        saved = float(step) if at is None else at
        one = Saved(step=step, path=path.name, layout="step", modified=saved)
        before = self.facts.checkpoints if self.facts is not None else ()
        others = (other for other in before if other.path != one.path)
        self.facts = CheckpointFacts(checkpoints=(*others, one))
        return ResumePoint(path=str(path), step=step, modified=saved)

    def _scan(self, folder: Path) -> CheckpointFacts:
        if self.facts is None:
            raise UnreachableError(f"{folder} does not answer")
        return self.facts


def test_without_any_checkpoint_it_starts_from_the_beginning() -> None:
    tier = Tier()
    for attempt in (0, 1):
        offered = tier.checkpoints.offer(Choose(), SupervisionState(attempt=attempt))
        assert (offered.checkpoint, offered.problem) == (None, "")
    assert tier.checkpoints.later() is None
    assert tier.checkpoints.saved_at(()) is None


def test_where_none_is_left_that_loads_it_does_not_start_from_the_beginning() -> None:
    bad = ResumePoint(path="/saved/step_5", step=5)
    ledger = SupervisionState(attempt=1, saved=True, left_out=[bad])
    offered = Tier().checkpoints.offer(Choose(without=frozenset({bad})), ledger)
    assert offered.problem.endswith("no checkpoint is left: /saved/step_5 does not load")


def test_checkpoints_that_have_vanished_are_not_taken_for_none() -> None:
    tier = Tier()
    tier.facts = None
    ledger = SupervisionState(attempt=1, saved=True)
    problem = tier.checkpoints.offer(Choose(), ledger).problem
    assert tier.said == ["no checkpoint is taken from /saved does not answer"]
    assert problem.endswith("the checkpoints have vanished: /saved does not answer")
    assert tier.checkpoints.offer(Choose(), SupervisionState(attempt=1)).problem == ""


def test_a_folder_that_is_empty_is_one_whose_mount_was_lost(tmp_path: Path) -> None:
    tier = Tier(tmp_path)
    offered = tier.checkpoints.offer(Choose(), SupervisionState(attempt=1, saved=True))
    assert offered.problem.endswith(f"have vanished: none is in {tmp_path} any more")
    (Path(tier.save(5).path) / "weights.bin").write_bytes(b"")
    assert "weights.bin: is empty" in (
        tier.checkpoints.offer(Choose(), SupervisionState(attempt=1, saved=True)).problem
    )


def test_one_that_is_written_anew_is_another(tmp_path: Path) -> None:
    tier = Tier(tmp_path)
    tier.save(5)
    bad = tier.save(10)
    told = tier.checkpoints.later({bad})
    assert told is not None
    assert told.step == 5
    tier.save(10, at=99.0)
    told = tier.checkpoints.later({bad})
    assert told is not None
    assert (told.step, told.modified) == (10, 99.0)


def test_each_later_checkpoint_is_told_once_and_the_best_is_offered(tmp_path: Path) -> None:
    tier = Tier(tmp_path)
    first = tier.save(5)
    told = tier.checkpoints.later()
    assert told is not None
    assert told == first
    assert tier.checkpoints.later() is None
    second = tier.save(10)
    assert tier.checkpoints.later() is not None
    assert tier.checkpoints.saved_at(()) == 10.0
    assert tier.checkpoints.saved_at({second}) == 5.0
    offered = tier.checkpoints.offer(
        Choose(without=frozenset({second})), SupervisionState(attempt=1)
    )
    assert (offered.time.wall, offered.problem) == (50.0, "")
    assert offered.checkpoint == first


def test_what_was_left_out_on_the_way_is_said(tmp_path: Path) -> None:
    tier = Tier(tmp_path)
    whole, cut = tier.save(5), tier.save(10)
    (Path(cut.path) / "weights.bin").write_bytes(b"")
    offered = tier.checkpoints.offer(Choose(), SupervisionState())
    assert offered.checkpoint == whole
    assert tier.said == [f"left out: {cut.path}/weights.bin: is empty"]
