"""What the coordinator keeps of the agents' series, and what it asks them for."""

from __future__ import annotations

import os
from pathlib import Path

from ray_sentinel.actors.history import MEMORY_BYTES, HistoryKeeper, wanted
from ray_sentinel.actors.metrics import KEY_SERIES, history_series
from ray_sentinel.clock import FakeClock
from ray_sentinel.diagnose.series import Selector
from ray_sentinel.model.metrics import Family, Metric, Sample
from ray_sentinel.store.history import MEMORY_SECONDS
from ray_sentinel.store.history_source import HistorySource


def kept(keeper: HistoryKeeper, name: str) -> list[float]:
    return [
        float(value)
        for series in keeper.history.source().samples(Selector(name), 0, 1e12)
        for value in series.values
    ]


def test_what_is_asked_for_fits_whatever_the_number_of_nodes() -> None:
    for nodes in (0, 1, 2, 10, 29, 30, 100, 1000, 2000):
        asked = wanted(nodes)
        bytes_in_all = 8 * nodes * asked.series * MEMORY_SECONDS / asked.seconds
        assert bytes_in_all <= MEMORY_BYTES * 0.76
        assert asked.series >= 30
        assert 5.0 <= asked.seconds <= 30.0


def test_the_newest_half_hour_survives_a_killed_coordinator(tmp_path: Path) -> None:
    clock = FakeClock()
    keeper = HistoryKeeper(tmp_path, clock)
    keeper.take("n1", {"hw_load1": 1.0})
    keeper.step()
    keeper.save_when_due()
    keeper.take("n1", {"hw_load1": 2.0})
    keeper.step()
    keeper.save_when_due()
    (file,) = tmp_path.glob("series-*.db")
    os.utime(file, (clock.now(), clock.now()))
    clock.advance(1.0)
    again = HistoryKeeper(tmp_path, clock)
    assert kept(again, "hw_load1") == [1.0], "the second was not yet due"
    clock.advance(3600.0)
    assert kept(HistoryKeeper(tmp_path, clock), "hw_load1") == [], "another job's"


def test_the_file_is_written_at_the_end_and_the_one_before_is_left(tmp_path: Path) -> None:
    clock = FakeClock()
    for value in (1.0, 2.0):
        keeper = HistoryKeeper(tmp_path, clock)
        keeper.take("n1", {"train_step": value})
        keeper.close()
        clock.advance(7200.0)
    files = sorted(tmp_path.iterdir())
    found = []
    for file in files:
        source = HistorySource.open(file)
        found += [s.values.tolist() for s in source.samples(Selector("train_step"), 0, 1e12)]
        source.close()
    assert found == [[1.0], [2.0]]


def test_a_file_that_cannot_be_written_or_read_is_said(tmp_path: Path) -> None:
    clock = FakeClock()
    (tmp_path / "series-0.db").write_bytes(b"rubbish" * 1000)
    os.utime(tmp_path / "series-0.db", (clock.now(), clock.now()))
    keeper = HistoryKeeper(tmp_path, clock)
    assert keeper.path is not None
    keeper.path.mkdir()
    keeper.take("n1", {"hw_load1": 1.0, "": 5.0})
    keeper.take("n1", {"hw_load1": 1.0})
    keeper.step()
    keeper.save_when_due()
    assert str(keeper.path) in keeper.problem
    assert len(kept(keeper, "hw_load1")) >= 1


def test_without_a_folder_it_is_in_memory_only() -> None:
    keeper = HistoryKeeper(None, FakeClock())
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
    found = history_series(families, 20)
    assert len(found) == 20
    assert list(found)[:9] == [*(f'{KEY_SERIES[0]}{{gpu="{i}"}}' for i in range(8)), "tb_loss"]
    assert not [name for name in found if name.startswith("my_")]
