"""Bundles on disk."""

from __future__ import annotations

import os
from pathlib import Path

import msgspec
import pytest

from ray_sentinel.actors.bundles import bundle
from ray_sentinel.actors.bundles.index import link_backtraces
from ray_sentinel.model.incident import Incident
from tests.support.incidents import an_incident

INCIDENT = an_incident(id="0007", suspected_at=1_767_323_045.0)


def test_the_folder_is_named_by_time_kind_and_number(tmp_path: Path) -> None:
    folder = bundle.create(tmp_path, INCIDENT)
    assert folder.name == "20260102T030405Z-gil-held-0007"
    stored = msgspec.json.decode((folder / "incident.json").read_bytes(), type=Incident)
    assert stored == msgspec.structs.replace(INCIDENT, bundle=str(folder))
    assert [path.name for path in tmp_path.iterdir()] == [folder.name], "nothing half made is left"


def test_nothing_is_overwritten(tmp_path: Path) -> None:
    first = bundle.create(tmp_path, INCIDENT)
    (first / "mine").write_text("kept")
    second = bundle.create(tmp_path, INCIDENT)
    assert second.name == first.name + "-2"
    assert (first / "mine").read_text() == "kept"


def test_a_folder_is_found_again_by_its_incident(tmp_path: Path) -> None:
    folder = bundle.create(tmp_path, INCIDENT)
    other = msgspec.structs.replace(INCIDENT, suspected_at=INCIDENT.suspected_at + 1)
    assert bundle.find(tmp_path, INCIDENT) == folder
    assert bundle.find(tmp_path, other) is None


def test_equal_files_are_stored_once(tmp_path: Path) -> None:
    files = {"a.txt": b"same", "sub/b.txt": b"same", "c.txt": b"other"}
    assert bundle.put(tmp_path, files).problems == []
    assert os.stat(tmp_path / "a.txt").st_ino == os.stat(tmp_path / "sub/b.txt").st_ino
    assert (tmp_path / "c.txt").read_bytes() == b"other"


def test_rewriting_one_of_two_equal_files_leaves_the_other(tmp_path: Path) -> None:
    bundle.put(tmp_path, {"a.txt": b"same", "b.txt": b"same"})
    bundle.put(tmp_path, {"a.txt": b"new"})
    assert (tmp_path / "b.txt").read_bytes() == b"same"


@pytest.mark.parametrize("name", ["../x", "/x", "a/../../x", "", "a//b", "a\nb", "a/b/c/d/e"])
def test_names_that_lead_out_are_refused(tmp_path: Path, name: str) -> None:
    (problem,) = bundle.put(tmp_path / "in", {name: b"x"}).problems
    assert "no name for a file" in problem
    assert not any(path.is_file() for path in tmp_path.rglob("*"))


def test_what_is_too_long_is_cut_and_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bundle, "MAX_FILE", 100)
    monkeypatch.setattr(bundle, "MAX_BUNDLE", 250)
    (problem,) = bundle.put(tmp_path, {"a": b"x" * 200, "b": b"y" * 200}).problems
    written = (tmp_path / "a").read_bytes()
    assert len(written) == 100
    assert b"cut off" in written
    assert problem.startswith("b was left out")


def test_a_full_disk_is_said(tmp_path: Path) -> None:
    (tmp_path / "f").write_text("a file where a folder must be")
    (problem,) = bundle.put(tmp_path, {"f/a": b"x"}).problems
    assert "could not be written" in problem


def test_a_later_look_does_not_overwrite_the_first(tmp_path: Path) -> None:
    assert [bundle.capture_folder(number) for number in (1, 2, 3)] == ["", "look_2/", "look_3/"]
    bundle.put(tmp_path, {"report.md": b"r"})
    assert bundle.last_capture(tmp_path) == 0
    bundle.put(tmp_path, {"pyspy_n_1.txt": b"first"})
    assert bundle.last_capture(tmp_path) == 1
    bundle.put(tmp_path, {"look_2/pyspy_n_1.txt": b"second", "look_x/y": b""})
    assert bundle.last_capture(tmp_path) == 2
    assert bundle.last_capture(tmp_path / "none") == 0
    assert (tmp_path / "pyspy_n_1.txt").read_bytes() == b"first"
    assert (tmp_path / "look_2" / "pyspy_n_1.txt").read_bytes() == b"second"


def test_the_highest_number_of_all_folders(tmp_path: Path) -> None:
    assert bundle.highest_number(None) == bundle.highest_number(tmp_path / "none") == 0
    for name in (
        "20260102T030405Z-gil-held-0007",
        "20260102T030405Z-gil-held-0009-2",
        "20260102T030405Z-rank-dead-0011",
        ".20260102T030405Z-rank-dead-0099.77.part",
        "notes-2024.txt",
        "lost+found",
    ):
        (tmp_path / name).mkdir()
    assert bundle.highest_number(tmp_path) == 11


def test_backtraces_are_found_in_one_folder_and_nothing_of_others_is_lost(tmp_path: Path) -> None:
    bundle_folder, root = tmp_path / "incidents/one", tmp_path / "backtraces"
    bundle_folder.mkdir(parents=True)
    for name in ("pyspy_h_1.txt", "cudagdb_h_1.txt", "gdb_h_1.txt", "incident.json"):
        (bundle_folder / name).write_text(name)
    assert link_backtraces(bundle_folder, root) == []
    assert sorted(path.name for path in root.iterdir()) == ["cudagdb_h_1.txt", "pyspy_h_1.txt"]
    assert (root / "pyspy_h_1.txt").read_text() == "pyspy_h_1.txt"
    # Those of a bundle that was removed go; a file of somebody else's stays, and is told.
    (bundle_folder / "cudagdb_h_1.txt").unlink()
    (root / "pyspy_h_1.txt").unlink()
    (root / "pyspy_h_1.txt").write_text("mine")
    assert "pyspy_h_1.txt" in link_backtraces(bundle_folder, root)[0]
    assert [path.name for path in root.iterdir()] == ["pyspy_h_1.txt"]
    assert (root / "pyspy_h_1.txt").read_text() == "mine"
