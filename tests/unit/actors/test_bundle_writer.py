"""What is told of files that come late: of a real folder that cannot be written at first."""

from __future__ import annotations

import json
import threading
from pathlib import Path

from ray_sentinel.actors.bundles.bundle import Written
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


class Reports(Bundles):
    """Of which the first is refused by the disk when it is told to be."""

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self.begun, self.refused = threading.Event(), threading.Event()
        self.states: list[str] = []

    def publish(self, incident: Incident) -> Written:
        self.states.append(incident.state)
        if len(self.states) > 1:
            return super().publish(incident)
        self.begun.set()
        self.refused.wait(20.0)
        return Written(None, ["Input/output error"], {})


def test_a_report_that_failed_is_not_written_over_a_newer_one(tmp_path: Path) -> None:
    bundles = Reports(tmp_path / "incidents")
    writer = BundleWriter(bundles, seconds=0.05, retry_seconds=0.01)
    assert writer.publish(an_incident(state="confirmed")) is None
    assert bundles.begun.wait(20.0)
    writer.publish(an_incident(state="resolved"))
    bundles.refused.set()
    writer.publish(an_incident(id="2"))  # written after all that waited by then
    eventually(lambda: len(bundles.states) >= 3, "the others are written")
    eventually(lambda: not writer.waiting, "nothing is tried again")
    writer.close()
    assert bundles.states == ["confirmed", "resolved", "confirmed"]
    (report,) = (tmp_path / "incidents").glob("*-1/incident.json")
    assert json.loads(report.read_bytes())["state"] == "resolved"


def test_a_report_that_failed_is_written_where_there_is_no_newer_one(tmp_path: Path) -> None:
    bundles = Reports(tmp_path / "incidents")
    bundles.refused.set()
    writer = BundleWriter(bundles, retry_seconds=0.01)
    assert writer.publish(an_incident(state="confirmed")) is None
    eventually(lambda: list((tmp_path / "incidents").glob("*-1/incident.json")), "tried again")
    writer.close()
