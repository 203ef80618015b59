"""Making room removes what is ours and over, and nothing else that lies in a shared folder."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from ray_sentinel.actors import lease
from ray_sentinel.actors.bundles import bundle, pruning
from ray_sentinel.actors.bundles.pruning import Pruner
from ray_sentinel.actors.coordinator.event_log.log import EventLog
from ray_sentinel.actors.lease import Lease, LeaseWatch
from ray_sentinel.clock import FakeClock
from ray_sentinel.engine.events import Tick
from ray_sentinel.store.history.file import HistoryFile, lock_of
from tests.support.incidents import an_incident
from tests.support.parts import lacking

OURS, OTHER = "20260102T030405Z-aaaaaa", "20260102T030405Z-bbbbbb"
LONG_AGO = 1_700_000_000.0


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def folders(tmp_path: Path) -> Path:
    for name in ("incidents", "events", "history"):
        (tmp_path / name).mkdir()
    return tmp_path


def pruner(root: Path, clock: FakeClock, *, most: int = 0, name: str = OURS) -> Pruner:
    return Pruner(
        name,
        most,
        clock,
        bundles=root / "incidents",
        events=root / "events",
        history=root / "history",
    )


def bundle_of(root: Path, deployment: str, number: int = 1, age: float = 0.0) -> Path:
    made = bundle.create(
        root / "incidents", an_incident(id=f"{number:04d}", suspected_at=LONG_AGO), deployment
    )
    (made / "pyspy_h_1.txt").write_bytes(b"x" * 1000)
    os.utime(made, (LONG_AGO + age, LONG_AGO + age))
    return made


def log_of(root: Path, deployment: str) -> Path:
    log = EventLog(root / "events" / deployment)
    log.append(Tick(time=1.0))
    log.close()
    return log.folder


def history_of(root: Path, deployment: str) -> Path:
    file = HistoryFile(root / "history", deployment)
    # So much later that nobody goes on with the other's file.
    assert file.put([], time.time() + (10_000 if deployment == OURS else 20_000))
    file.close()
    found = [
        path for path in (root / "history").glob("*.db") if lock_of(path).read_text() == deployment
    ]
    assert len(found) == 1
    return found[0]


def names(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()} - {lease.FOLDER}


def age_lease(root: Path, deployment: str, seconds: float) -> None:
    for folder in ("incidents", "events", "history"):
        path = root / folder / lease.FOLDER / f"{deployment}.lease"
        then = path.stat().st_mtime - seconds
        os.utime(path, (then, then))


def test_what_is_not_ours_stays_and_does_not_count(folders: Path, clock: FakeClock) -> None:
    incidents = folders / "incidents"
    own = bundle_of(folders, OURS)
    foreign = incidents / "checkpoints-step-1000"
    foreign.mkdir()
    (foreign / "model.bin").write_bytes(b"x" * 100_000)
    for name in ("20260102T030405Z-hang-0001", "20260102T030405Z-dead-0001.bak", "notes"):
        (incidents / name).mkdir()
        (incidents / name / "incident.json").write_text("{}")
    (incidents / "20260102T030405Z-dead-0009").write_text("a file")
    (folders / "events" / "mine.jsonl").write_text("x")
    (folders / "history" / "series-of-mine.db").write_text("x")
    (folders / "history" / "runs.db").write_text("x")
    before = {name: names(folders / name) for name in ("incidents", "events", "history")}

    # A foreign terabyte beside ours does not make room of ours.
    assert pruner(folders, clock, most=50_000).prune(()) == []
    assert pruner(folders, clock).prune(()) == [own]
    assert names(incidents) == before["incidents"] - {own.name}
    assert names(folders / "events") == before["events"]
    assert names(folders / "history") == before["history"]
    assert (foreign / "model.bin").stat().st_size == 100_000


def test_a_name_and_a_mark_are_not_enough(folders: Path, clock: FakeClock) -> None:
    fake = folders / "incidents" / "20260102T030405Z-dead-0001"
    fake.mkdir()
    (fake / bundle.MARK).write_text(OURS + "\n")
    (fake / "weights").write_bytes(b"x" * 5000)
    assert pruner(folders, clock).prune(()) == []
    os.mkfifo(fake / "incident.json")
    assert pruner(folders, clock).prune(()) == []
    (fake / "incident.json").unlink()
    (fake / "incident.json").write_text('{"id": "0001"}')
    assert pruner(folders, clock).prune(()) == []
    assert (fake / "weights").exists()


def test_the_oldest_go_first_and_the_open_ones_stay(folders: Path, clock: FakeClock) -> None:
    made = [bundle_of(folders, OURS, number, age=number) for number in range(1, 5)]
    size = pruning.size_of(made[0])
    removed = pruner(folders, clock, most=size * 5 // 2).prune({made[0]})
    assert removed == [made[1], made[2]]
    assert names(folders / "incidents") == {made[0].name, made[3].name}


def test_numbered_bundles_and_leftovers_of_ours_go(folders: Path, clock: FakeClock) -> None:
    incidents = folders / "incidents"
    first, second = bundle_of(folders, OURS), bundle_of(folders, OURS)
    assert second.name == first.name + "-2"
    begun = incidents / f".{first.name}.{OURS}.999999.part"
    gone = incidents / f".{first.name}.{OURS}.{os.getpid()}.gone"
    writing = incidents / f".{first.name}.{OURS}.{os.getpid()}.part"
    theirs = incidents / f".{first.name}.{OTHER}.999999.part"
    for folder in (begun, gone, writing, theirs):
        folder.mkdir()
        (folder / "incident.json").write_bytes(b"x" * 1000)
    assert set(pruner(folders, clock).prune(())) == {first, second, begun, gone}
    assert names(incidents) == {writing.name, theirs.name}


def test_no_link_is_followed(folders: Path, clock: FakeClock, tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "checkpoint").write_text("x")
    own = bundle_of(folders, OURS)
    (own / "flight_recorder").symlink_to(elsewhere)
    real = bundle_of(folders, OURS, 2)
    moved = elsewhere / real.name
    real.rename(moved)
    real.symlink_to(moved)
    log = log_of(folders, OTHER)
    log.rename(elsewhere / OURS)
    (folders / "events" / OURS).symlink_to(elsewhere / OURS)
    assert pruner(folders, clock).prune(()) == [own]
    assert (elsewhere / "checkpoint").exists()
    assert (moved / "incident.json").exists()
    assert any((elsewhere / OURS).iterdir())


def test_another_living_deployment_loses_nothing(folders: Path, clock: FakeClock) -> None:
    other = pruner(folders, clock, name=OTHER, most=1 << 30)
    other.renew()
    kept = [bundle_of(folders, OTHER), log_of(folders, OTHER), history_of(folders, OTHER)]
    own = [bundle_of(folders, OURS, 2), log_of(folders, OURS), history_of(folders, OURS)]
    age_lease(folders, OTHER, 10 * 86_400)  # a clock that jumped
    ours = pruner(folders, clock)
    for _ in range(3):
        ours.prune(())
        clock.advance(10_000.0)
    assert all(path.exists() for path in kept)
    assert not any(path.exists() for path in own)
    assert "other deployments" in ours.notes[0]


def test_what_a_deployment_left_that_is_over_goes(folders: Path, clock: FakeClock) -> None:
    other = pruner(folders, clock, name=OTHER)
    other.renew()
    left = {bundle_of(folders, OTHER), log_of(folders, OTHER), history_of(folders, OTHER)}
    other.close()
    ours = pruner(folders, clock)
    assert set(ours.prune(())) == left
    assert ours.prune(()) == []
    leases = {path.name for path in folders.glob(f"*/{lease.FOLDER}/*")}
    assert leases == {f"{OURS}.lease"}


def test_of_a_deployment_that_nothing_is_known_of_nothing_goes(
    folders: Path, clock: FakeClock
) -> None:
    kept = [bundle_of(folders, OTHER), bundle_of(folders, "", 2), log_of(folders, OTHER)]
    kept.append(history_of(folders, OTHER))
    ours = pruner(folders, clock)
    for _ in range(3):
        assert ours.prune(()) == []
        clock.advance(100_000.0)
    assert all(path.exists() for path in kept)


def test_files_of_another_user_are_not_ours(folders: Path, clock: FakeClock) -> None:
    if os.geteuid() != 0:
        lacking("only root can give files away: run the tests as root")
    theirs = bundle_of(folders, OURS)
    os.chown(theirs, 65534, 65534)
    assert pruner(folders, clock).prune(()) == []
    assert theirs.exists()


@pytest.fixture
def holder(tmp_path: Path) -> Iterator[tuple[Path, int]]:
    """Another process with a lease of its own: (its root, its pid)."""
    root = tmp_path / "shared"
    root.mkdir()
    with ExitStack() as stack:
        reads, writes = os.pipe()
        pid = os.fork()
        if not pid:
            held = Lease(root, OTHER)
            held.renew()
            os.write(writes, b"x")
            signal.pause()
            os._exit(0)
        stack.callback(lambda: _end(pid))
        os.close(writes)
        assert os.read(reads, 1) == b"x"
        os.close(reads)
        yield root, pid


def _end(pid: int) -> None:
    try:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
    except (ProcessLookupError, ChildProcessError):
        pass


def test_a_killed_deployment_is_over_when_ray_would_have_restarted_it(
    holder: tuple[Path, int], clock: FakeClock
) -> None:
    root, pid = holder
    own = Lease(root, OURS)
    own.renew()
    watch = LeaseWatch(own, clock, lambda path: True)
    path = root / lease.FOLDER / f"{OTHER}.lease"
    long_ago = path.stat().st_mtime - 86_400
    os.utime(path, (long_ago, long_ago))
    watch.over(OTHER)
    clock.advance(10 * lease.WATCHED_LONG)
    assert not watch.over(OTHER)  # it lives: its lock says so
    _end(pid)
    assert watch.over(OTHER)

    fresh = LeaseWatch(own, clock, lambda path: True)
    assert not fresh.over(OTHER)
    clock.advance(lease.WATCHED_ONCE + 1)
    assert fresh.over(OTHER)
    os.utime(path)  # killed a moment ago: Ray may be restarting it
    fresh.over(OTHER)
    clock.advance(lease.WATCHED_ONCE + 1)
    assert not fresh.over(OTHER)


def test_over_a_network_a_lease_is_watched_for_long(
    holder: tuple[Path, int], clock: FakeClock
) -> None:
    root, pid = holder
    _end(pid)
    own = Lease(root, OURS)
    own.renew()
    watch = LeaseWatch(own, clock, lambda path: False)
    assert not watch.over(OTHER)
    clock.advance(lease.WATCHED_LONG - 1)
    assert not watch.over(OTHER)
    clock.advance(2)
    assert watch.over(OTHER)
    path = root / lease.FOLDER / f"{OTHER}.lease"
    path.write_bytes(path.read_bytes().replace(b'"beat":1', b'"beat":2'))
    assert not watch.over(OTHER)  # it lives after all
    old = path.stat().st_mtime - lease.OLD_SECONDS - 60
    os.utime(path, (old, old))
    assert not watch.over(OTHER)
    clock.advance(lease.WATCHED_SHORT)
    assert watch.over(OTHER)


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"{}",
        b"[1",
        b"\xff\xfe",
        b'{"deployment": "20260102T030405Z-cccccc", "ended": true}',
        b'{"lease": "mine", "deployment": "20260102T030405Z-bbbbbb", "ended": true}',
    ],
)
def test_a_lease_that_is_none_proves_nothing(tmp_path: Path, clock: FakeClock, text: bytes) -> None:
    own = Lease(tmp_path, OURS)
    own.renew()
    (own.folder / f"{OTHER}.lease").write_bytes(text)
    watch = LeaseWatch(own, clock, lambda path: False)
    watch.over(OTHER)
    clock.advance(10 * lease.OLD_SECONDS)
    assert not watch.over(OTHER)


def test_a_lease_of_another_user_proves_nothing(tmp_path: Path, clock: FakeClock) -> None:
    if os.geteuid() != 0:
        lacking("only root can give files away: run the tests as root")
    other = Lease(tmp_path, OTHER)
    other.renew()
    other.end()
    own = Lease(tmp_path, OURS)
    own.renew()
    watch = LeaseWatch(own, clock)
    assert watch.over(OTHER)
    os.chown(own.folder / f"{OTHER}.lease", 65534, 65534)
    assert not watch.over(OTHER)


def test_the_own_lease_comes_back_where_somebody_removes_it(tmp_path: Path) -> None:
    own = Lease(tmp_path, OURS)
    own.renew()
    path = own.folder / f"{OURS}.lease"
    path.unlink()
    own.renew()
    assert path.exists()
    own.end()
    own.renew()
    assert b'"ended":true' in path.read_bytes()


def test_the_local_file_systems_are_told_from_shared_ones(tmp_path: Path) -> None:
    mounts = tmp_path / "mountinfo"
    mounts.write_text(
        "22 1 8:1 / / rw - ext4 /dev/sda1 rw\n"
        "30 22 0:40 / /mnt/my\\040share rw shared:1 - nfs4 server:/x rw\n"
        "31 30 8:2 / /mnt/my\\040share/local rw - xfs /dev/sdb rw\n"
        "32 22 0:50 / /over rw - tmpfs tmpfs rw\n"
        "33 22 0:51 / /over rw - lustre server rw\n"
    )
    found = {
        path: lease.on_local_disk(Path(path), mounts)
        for path in ("/a", "/mnt/my share/x", "/mnt/my share/local/x", "/mnt/my shareX", "/over/x")
    }
    assert list(found.values()) == [True, False, True, True, False]
    assert not lease.on_local_disk(Path("/a"), tmp_path / "missing")
