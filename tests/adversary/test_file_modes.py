"""Nobody else reads what the monitor keeps, whatever the umask; a planted folder is not taken."""

from __future__ import annotations

import os
import stat
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from ray_sentinel.actors.bundles.index import Bundles, capture_root
from ray_sentinel.actors.coordinator.event_log.log import EventLog
from ray_sentinel.actors.coordinator.phase_file import PhaseFile
from ray_sentinel.actors.lease import Lease
from ray_sentinel.actors.storage import DeploymentStorage
from ray_sentinel.config import Config
from ray_sentinel.engine.events import Tick
from ray_sentinel.private_files import be_private, keep_private, make_private
from ray_sentinel.store.history.file import HistoryFile
from ray_sentinel.supervise.run_folder import RunFolder
from ray_sentinel.whole_file import write_whole
from tests.support.incidents import an_incident
from tests.support.other_user import NOBODY, as_nobody

NAME = "20260102T030405Z-aaaaaa"


@pytest.fixture
def open_place() -> Iterator[Path]:
    """A folder that everybody may enter and read, and no umask, as unkind as it gets."""
    before = os.umask(0)
    try:
        with tempfile.TemporaryDirectory(dir="/tmp") as folder:
            os.chmod(folder, 0o755)
            yield Path(folder)
    finally:
        os.umask(before)


def readable(root: Path) -> list[str]:
    """What of it this user can list or read, below the root."""
    found = []
    for folder, _, files in os.walk(root):
        if folder != str(root):
            found.append(folder)
        for name in files:
            try:
                Path(folder, name).read_bytes()
                found.append(f"{folder}/{name}")
            except PermissionError:
                continue
    return found


def fill(log_dir: Path) -> None:
    """Everything that a coordinator writes."""
    config = Config(log_dir=str(log_dir), job="j")
    storage = DeploymentStorage(config, {}, deployment=NAME)
    Lease(log_dir, NAME).renew()
    Bundles(capture_root(storage, config, "incidents"), (), NAME).store(
        an_incident(id="0001"), {"flight_recorder/_dump_0": b"x", "pyspy_h_1.txt": b"x"}
    )
    events = storage.folder("events")
    assert events is not None
    log = EventLog(events / NAME, segment_bytes=10)
    for at in range(3):
        log.append(Tick(time=float(at)), ())
    log.close()
    HistoryFile(log_dir / "history", NAME).put([], 1_700_000_000.0)
    PhaseFile(log_dir).save({"job": {"train": (1.0,)}})
    run = RunFolder(log_dir / "run" / "job")
    run.lock()
    write_whole(run.new_attempt(0) / "state.json", b"{}")


def test_another_user_reads_nothing_whatever_the_umask(open_place: Path) -> None:
    fill(open_place)
    assert len(list(open_place.rglob("*"))) > 15
    assert as_nobody(readable, open_place) == []
    # Nor if somebody opens the folders: the files have modes of their own.
    for path in open_place.rglob("*"):
        mode = stat.S_IMODE(path.lstat().st_mode)
        assert mode == (0o700 if path.is_dir() else 0o600), path


def test_a_log_folder_that_we_make_is_ours_alone(open_place: Path) -> None:
    fill(open_place / "made" / "by" / "us")
    assert as_nobody(readable, open_place) == []
    assert stat.S_IMODE((open_place / "made").stat().st_mode) == 0o700


def test_folders_of_earlier_versions_are_closed_and_the_users_is_left(open_place: Path) -> None:
    root = open_place / "shared"
    root.mkdir(mode=0o755)
    for name in ("incidents", "events", "history", "logs", "prometheus"):
        (root / name).mkdir(mode=0o755)
        (root / name / "old").write_text("secret")
    assert as_nobody(readable, root)
    storage = DeploymentStorage(Config(log_dir=str(root)), {})
    for name in ("incidents", "events", "history", "logs", "prometheus"):
        assert storage.folder(name) == root / name
    assert as_nobody(readable, root) == []
    assert stat.S_IMODE(root.stat().st_mode) == 0o755
    assert storage.notes == []


def test_a_log_folder_that_others_may_write_into_is_said(open_place: Path) -> None:
    open_place.chmod(0o777)
    (note,) = DeploymentStorage(Config(log_dir=str(open_place)), {}).notes
    assert str(open_place) in note
    assert "chmod go-w" in note


def test_a_process_of_ours_hides_what_it_makes_without_a_mode(open_place: Path) -> None:
    be_private()  # the fixture puts the umask back
    (open_place / "file").write_text("x")
    (open_place / "folder").mkdir()
    assert as_nobody(readable, open_place) == []


def plant(folder: Path, mode: int) -> None:
    folder.mkdir()
    folder.chmod(mode)
    (folder / "j").mkdir()
    (folder / "j").chmod(0o777)


@pytest.mark.parametrize("mode", [0o777, 0o755, 0o1777])
def test_a_fallback_that_somebody_else_made_is_not_taken(
    open_place: Path, monkeypatch: pytest.MonkeyPatch, mode: int
) -> None:
    open_place.chmod(0o1777)
    monkeypatch.setattr(tempfile, "tempdir", str(open_place))
    usual = open_place / f"ray_sentinel-{os.getuid()}"
    as_nobody(plant, usual, mode)
    blocked = open_place / "file"
    blocked.write_text("")
    storage = DeploymentStorage(Config(log_dir=str(blocked / "below"), job="j"), {})
    assert storage.root is not None
    assert not storage.root.is_relative_to(usual)
    assert list((usual / "j").iterdir()) == []
    said = "\n".join(storage.notes)
    assert f"{usual} is not used: belongs to user {NOBODY}" in said
    keep_private(storage.root / "incidents")
    assert as_nobody(readable, storage.root.parent) == []


def test_a_planted_link_is_not_followed_to_the_fallback(
    open_place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    open_place.chmod(0o1777)
    monkeypatch.setattr(tempfile, "tempdir", str(open_place))
    usual = open_place / f"ray_sentinel-{os.getuid()}"
    as_nobody(os.symlink, str(open_place), str(usual))
    blocked = open_place / "file"
    blocked.write_text("")
    storage = DeploymentStorage(Config(log_dir=str(blocked / "below"), job="j"), {})
    assert not (open_place / "j").exists()
    assert "is no folder" in "\n".join(storage.notes)


def test_a_folder_of_somebody_else_in_a_shared_log_folder_is_not_used(open_place: Path) -> None:
    open_place.chmod(0o1777)
    as_nobody(os.mkdir, str(open_place / "incidents"), 0o777)
    as_nobody(os.symlink, "/var/tmp", str(open_place / "events"))
    storage = DeploymentStorage(Config(log_dir=str(open_place)), {})
    assert storage.folder("incidents") is None
    assert storage.folder("events") is None
    assert storage.folder("history") == open_place / "history"
    assert len([note for note in storage.notes if "belongs to somebody else" in note]) == 2


def test_a_file_that_waits_under_our_temporary_name_is_not_written_into(tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    victim.write_text("mine")
    (tmp_path / f".report.md.{os.getpid()}").symlink_to(victim)
    write_whole(tmp_path / "report.md", b"ours")
    assert victim.read_text() == "mine"
    assert (tmp_path / "report.md").read_bytes() == b"ours"


def test_a_folder_below_a_dangling_link_is_refused(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "nowhere")
    with pytest.raises(FileExistsError):
        make_private(tmp_path / "link")
