"""What the coordinator keeps of the agents' series, and what it asks them for."""

from __future__ import annotations

import errno
import sqlite3
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from ray_sentinel.actors.coordinator.history import RECENT_BYTES, RETRY_SECONDS, wanted
from ray_sentinel.actors.metrics import KEY_SERIES, history_samples
from ray_sentinel.clock import FakeClock
from ray_sentinel.diagnose.series import Selector
from ray_sentinel.engine.telemetry.series import KEPT_SECONDS, Telemetry
from ray_sentinel.model.metrics import Family, Metric, Sample
from ray_sentinel.model.samples import SeriesKey
from ray_sentinel.store.history.source import HistorySource
from tests.support.told_history import ToldHistory


def kept(keeper: ToldHistory, name: str) -> list[float]:
    """What the engine's telemetry still has."""
    return [values[name] for _, _, values in keeper.recent() if name in values]


def test_what_is_asked_for_fits_whatever_the_number_of_nodes() -> None:
    for nodes in (0, 1, 2, 10, 29, 30, 100, 1000, 2000):
        asked = wanted(nodes)
        bytes_in_all = 8 * nodes * asked.series * KEPT_SECONDS / asked.seconds
        assert bytes_in_all <= RECENT_BYTES * 0.76
        assert asked.series >= 30
        assert 5.0 <= asked.seconds <= 30.0


def written(path: Path | None, name: str) -> list[float]:
    assert path is not None
    source = HistorySource.open(path)
    found = [s.values.tolist() for s in source.samples(Selector(name), 0, 1e12)]
    source.close()
    return [value for values in found for value in values]


def saved(keeper: ToldHistory, clock: FakeClock) -> None:
    clock.advance(30.0)
    keeper.save_when_due()


def killed(keeper: ToldHistory) -> None:
    """Let go as a kill does: nothing is written any more."""
    assert keeper.file is not None
    keeper.file.close()


def test_a_new_coordinator_goes_on_where_a_killed_one_was(tmp_path: Path) -> None:
    clock = FakeClock(time.time())
    keeper = ToldHistory(tmp_path, clock, owner="d1")
    keeper.take("n1", {"hw_load1": 1.0})
    saved(keeper, clock)
    keeper.take("n1", {"hw_load1": 2.0})
    path = keeper.path
    killed(keeper)
    again = ToldHistory(tmp_path, clock, owner="d1", begin=clock.now(), telemetry=keeper.telemetry)
    clock.advance(5.0)
    again.take("n1", {"hw_load1": 3.0})
    saved(again, clock)
    assert again.path == path
    assert written(path, "hw_load1") == [1.0, 3.0], "the second was not yet written"
    assert kept(again, "hw_load1") == [1.0, 2.0, 3.0], "the engine's log gave its telemetry back"
    killed(again)
    clock.advance(7200.0)
    later = ToldHistory(tmp_path, clock, owner="d1")
    later.take("n1", {"hw_load1": 4.0})
    saved(later, clock)
    assert written(path, "hw_load1") == [1.0, 3.0, 4.0], "the whole job"
    assert kept(later, "hw_load1") == [4.0]
    killed(later)
    clock.advance(7200.0)
    other = ToldHistory(tmp_path, clock, owner="d2")
    saved(other, clock)
    assert other.path != path, "another job's"


def test_what_is_longer_ago_than_memory_reaches_is_in_the_file_and_in_the_image(
    tmp_path: Path,
) -> None:
    clock = FakeClock(1.7e9)
    keeper = ToldHistory(tmp_path, clock)
    for _ in range(100):
        keeper.take("n1", {"train_step": clock.now()})
        saved(keeper, clock)
        clock.advance(60.0)
    first = min(written(keeper.path, "train_step"))
    assert first == 1.7e9
    assert min(kept(keeper, "train_step")) > 1.7e9 + 3600.0
    keeper.take("n1", {"train_step": 5.0})
    image = tmp_path / "image.db"
    image.write_bytes(keeper.image())
    values = written(image, "train_step")
    assert min(values) == 5.0, "what waits is in it as well"
    assert 1.7e9 in values


def test_a_disk_that_fails_loses_what_memory_cannot_hold_only(tmp_path: Path) -> None:
    clock = FakeClock(time.time())
    keeper = ToldHistory(tmp_path / "history", clock)
    (tmp_path / "history").write_text("in the way")
    for value in range(20):
        keeper.take("n1", {"hw_load1": float(value)})
        saved(keeper, clock)
    assert len(keeper.notes) == 1
    assert str(tmp_path / "history") in keeper.notes[0]
    assert b"SQLite" in keeper.image()[:16]
    assert len(kept(keeper, "hw_load1")) == 20
    (tmp_path / "history").unlink()
    saved(keeper, clock)
    assert keeper.notes == ()
    assert written(keeper.path, "hw_load1") == [float(value) for value in range(20)]


def test_a_file_that_is_removed_gets_the_last_half_hour_again(tmp_path: Path) -> None:
    clock = FakeClock(time.time())
    keeper = ToldHistory(tmp_path, clock)
    for value in (1.0, 2.0):
        keeper.take("n1", {"hw_load1": value})
        saved(keeper, clock)
    for file in keeper.files:
        file.unlink(missing_ok=True)
    keeper.take("n1", {"hw_load1": 3.0, "": 5.0})
    saved(keeper, clock)
    saved(keeper, clock)
    assert written(keeper.path, "hw_load1") == [1.0, 2.0, 3.0]
    keeper.take("n1", {"hw_load1": 4.0})
    path = keeper.path
    keeper.close()
    assert written(path, "hw_load1")[-1] == 4.0, "the end is written"


def test_without_a_folder_it_is_in_memory_only() -> None:
    keeper = ToldHistory(None, FakeClock())
    keeper.take("n1", {"hw_load1": 1.0})
    assert b"SQLite" in keeper.image()[:16]
    keeper.close()


def test_the_key_series_come_first_and_history_is_none_of_now() -> None:
    wide = Metric("hw_net_rx_bytes_total", "counter", "", ("device",))
    narrow = Metric("tb_loss", "gauge", "")
    key = Metric(KEY_SERIES[0], "gauge", "", ("gpu",))
    other = Metric("my_own", "gauge", "")
    families = [
        Family(other, (other(1.0),)),
        Family(wide, tuple(wide(1.0, f"veth{i}") for i in range(100))),
        Family(narrow, (narrow(1.0), Sample("tb_loss", (("attempt", "0"),), 2.0, 123.0))),
        Family(key, tuple(key(1.0, str(i)) for i in range(8))),
    ]
    found = history_samples(families, 20)
    assert len(found) == 20
    assert list(found)[:9] == [
        *(SeriesKey(KEY_SERIES[0], (("gpu", str(i)),)) for i in range(8)),
        SeriesKey("tb_loss"),
    ]
    assert not [key for key in found if key.name.startswith("my_")]


def test_keeping_writing_and_copying_go_on_beside_each_other(tmp_path: Path) -> None:
    clock = FakeClock(time.time())
    keeper = ToldHistory(tmp_path, clock)
    failures: list[BaseException] = []

    def often(times: int, work: Callable[[int], object]) -> threading.Thread:
        def run() -> None:
            try:
                for turn in range(times):
                    work(turn)
            except BaseException as error:
                failures.append(error)
                raise

        return threading.Thread(target=run)

    def tell(turn: int) -> None:
        clock.advance(5.0)
        keeper.take(f"n{turn % 3}", {"hw_load1": float(turn), f"hw_m{turn % 7}": 1.0})

    def copy(turn: int) -> None:
        place = tmp_path / f"image-{turn}"
        place.write_bytes(keeper.image())
        HistorySource.open(place).close()

    threads = [often(300, tell), often(100, lambda _: keeper.save_when_due()), often(15, copy)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60.0)
        assert not thread.is_alive()
    path = keeper.path
    keeper.close()
    assert failures == []
    assert sorted(written(path, "hw_load1"))[-1] == 299.0
    assert len(written(path, "hw_load1")) == 300


@pytest.mark.parametrize("failing", ["reading", "writing"])
@pytest.mark.parametrize(
    "error", [sqlite3.OperationalError("database is locked"), OSError(errno.EIO, "no answer")]
)
def test_what_a_save_that_raised_could_not_write_is_written_by_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failing: str, error: Exception
) -> None:
    clock = FakeClock(time.time())
    keeper = ToldHistory(tmp_path, clock)
    keeper.take("n1", {"hw_load1": 1.0})
    saved(keeper, clock)

    def fail(*_: object) -> None:
        raise error

    keeper.take("n1", {"hw_load1": 2.0})
    with monkeypatch.context() as broken:
        where = (Telemetry, "rows") if failing == "reading" else (keeper.file, "put")
        broken.setattr(*where, fail)
        with pytest.raises(type(error)):
            saved(keeper, clock)
        clock.advance(RETRY_SECONDS / 2)
        keeper.save_when_due()
    keeper.take("n1", {"hw_load1": 3.0})
    saved(keeper, clock)
    assert written(keeper.path, "hw_load1") == [1.0, 2.0, 3.0]


def test_a_file_system_that_does_not_answer_costs_nothing_but_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = FakeClock(time.time())
    keeper = ToldHistory(tmp_path, clock)
    keeper.take("n1", {"hw_load1": 1.0})
    saved(keeper, clock)
    path = keeper.path

    def fail(*_: object, **__: object) -> bool:
        raise OSError(errno.ESTALE, "stale file handle")

    keeper.take("n1", {"hw_load1": 2.0})
    with monkeypatch.context() as broken:
        broken.setattr(Path, "exists", fail)
        saved(keeper, clock)
    saved(keeper, clock)
    assert keeper.path == path
    assert written(path, "hw_load1") == [1.0, 2.0]
