"""What is told of files that come late: of a real folder that cannot be written at first."""

from __future__ import annotations

from pathlib import Path

from ray_sentinel.actors.bundles.index import Bundles
from ray_sentinel.actors.bundles.writer import BundleWriter
from ray_sentinel.model.incident import Incident
from tests.support.incidents import an_incident
from tests.support.waiting import eventually


def test_only_a_captures_own_files_are_told_when_they_come_late(tmp_path: Path) -> None:
    told: list[str] = []

    def late(incident: Incident, folder: Path) -> None:
        told.append(incident.id)

    root = tmp_path / "incidents"
    root.write_text("a file in the folder's place: nothing can be written below it")
    writer = BundleWriter(Bundles(root), late, retry_seconds=0.1)
    assert writer.store(an_incident(id="1"), {"logs/rank-0.log": b"x"}, told=False)[0] is None
    assert writer.store(an_incident(id="2"), {"pyspy_h_1.txt": b"x"})[0] is None
    root.unlink()
    eventually(lambda: len(list(root.glob("*/logs/rank-0.log"))) == 1, "the lines are written")
    eventually(lambda: told == ["2"], "the capture is told")
    writer.close()
    assert told == ["2"]
