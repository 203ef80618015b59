"""A history of days: its size, its resolution, and what a reader gets of it."""

from __future__ import annotations

import random
import shutil
import sqlite3
import time
from collections.abc import Callable, Iterable
from pathlib import Path

import numpy as np
import pytest

from ray_sentinel.diagnose.series import Floats, Selector
from ray_sentinel.errors import InputError
from ray_sentinel.store.history.file import HistoryFile
from ray_sentinel.store.history.source import HistorySource
from ray_sentinel.store.history.writer import RowPacker, Rows
from tests.support.appended_history import AppendedHistory

Told = Callable[[float], tuple[str, dict[str, float]]]
HOUR, DAY = 3600.0, 86400.0
BEGIN = 1.7e9
EVERY = 60.0


def filled(
    path: Path, moments: Iterable[float], told: Told, max_bytes: int = 64 << 20
) -> AppendedHistory:
    """A history of what ``told`` says of each moment after ``BEGIN``, thinned once an hour."""
    history, packer = AppendedHistory(path, max_bytes=max_bytes), RowPacker()
    lately: list[Rows] = []
    due = HOUR
    for at in moments:
        lately += packer.pack(BEGIN + at, *told(at))
        if at >= due:
            history.put(lately)
            history.prune(BEGIN + at)
            assert history.size() <= max_bytes * 1.2
            lately, due = [], at + HOUR
    history.put(lately)
    history.prune(BEGIN + at)
    return history


def written(path: Path, seconds: float) -> AppendedHistory:
    """A load that tells the hour, a counter of 3 a second that restarts each day, a step."""

    def told(at: float) -> tuple[str, dict[str, float]]:
        return "n1" if at % 120 else "n2", {
            "hw_load1": float(at // HOUR),
            "hw_tx_total": 3.0 * (at % DAY),
            "train_step": at // 7,
            'hw_rdma_port_state{device="mlx5_0"}': 0.0 if at == 7200.0 else 1.0,
        }

    return filled(path, np.arange(0.0, seconds, EVERY).tolist(), told)


@pytest.fixture(scope="module")
def ten_days(tmp_path_factory: pytest.TempPathFactory) -> AppendedHistory:
    return written(tmp_path_factory.mktemp("history") / "h.db", 10 * DAY)


def series(source: HistorySource, name: str, host: str, step: float) -> tuple[Floats, Floats]:
    span = source.span()
    assert span is not None
    grid = source.query_range(Selector(name, (("host", host),)), *span, step, "last")
    return grid.times - BEGIN, grid.values[0]


def steps(history: AppendedHistory) -> list[float]:
    base = sqlite3.connect(history.path)
    found = [row[0] for row in base.execute("SELECT DISTINCT step FROM blocks ORDER BY step")]
    base.close()
    return found


def test_ten_days_are_kept_whole_and_ever_coarser(ten_days: AppendedHistory) -> None:
    history = ten_days
    assert steps(history) == [10.0, 30.0, 120.0, 480.0]
    source = history.source()
    span = source.span()
    assert span is not None
    assert span[0] - BEGIN <= 480.0
    assert span[1] == BEGIN + 10 * DAY - EVERY
    for host in ("n1", "n2"):
        samples = source.samples(Selector("hw_load1", (("host", host),)), 0, 1e12)[0]
        gaps = np.diff(samples.times)
        old, new = samples.times[1:] < span[1] - 8 * DAY, samples.times[1:] > span[1] - HOUR
        assert set(gaps[old]) == {480.0}
        assert set(gaps[new]) == {120.0}, "as it came"
    assert history.size() < 4 << 20


def test_a_reader_does_not_see_the_seams(ten_days: AppendedHistory) -> None:
    source = ten_days.source()
    times, load = series(source, "hw_load1", "n1", 120.0)
    assert not np.isnan(load).any()
    off = np.abs(load - (times // HOUR))
    assert off.max() <= 1.0
    assert (off > 0.01).mean() < 0.2, "only where an hour begins"
    _, count = series(source, "hw_tx_total", "n1", 120.0)
    rises = np.diff(count)
    assert np.median(rises) == pytest.approx(360.0)
    assert 7 <= (rises < -1e5).sum() <= 9, "a restart is one fall"
    usual = (rises > 300) & (rises < 420)
    assert usual.mean() > 0.99
    _, step = series(source, "train_step", "n2", 120.0)
    assert (np.diff(step) >= 0).all()


def test_a_port_that_was_down_for_a_moment_still_was(ten_days: AppendedHistory) -> None:
    source = ten_days.source()
    found = source.samples(Selector("hw_rdma_port_state"), 0, 1e12)
    down = [float(at) for one in found for at in one.times[one.values == 0.0]]
    assert len(down) == 1
    assert 7200.0 <= down[0] - BEGIN <= 7200.0 + 480.0


def test_want_of_space_takes_resolution_first(tmp_path: Path) -> None:
    dice = np.random.default_rng(3)

    def told(_at: float) -> tuple[str, dict[str, float]]:
        return "n1", {f"hw_m{index}": float(dice.normal()) for index in range(100)}

    moments = np.arange(0.0, 12 * HOUR, 20.0).tolist()
    history = filled(tmp_path / "h.db", moments, told, 1 << 20)
    span = history.source().span()
    assert span is not None
    assert span[0] - BEGIN < HOUR
    assert max(steps(history)) >= 120.0, "that is not its age"


def test_in_the_end_the_oldest_goes(tmp_path: Path) -> None:
    def told(at: float) -> tuple[str, dict[str, float]]:
        return "n1", {f'hw_m{{i="{index}"}}': hash((at, index)) % 977 for index in range(60)}

    moments = np.arange(0.0, 12 * DAY, 900.0).tolist()
    history = filled(tmp_path / "h.db", moments, told, 250_000)
    span = history.source().span()
    assert span is not None
    assert span[0] > BEGIN + HOUR


def test_a_clock_that_was_set_back_loses_nothing(tmp_path: Path) -> None:
    moments = (*range(0, 3 * 3600, 10), *range(3600, 4 * 3600, 10))
    history = filled(tmp_path / "h.db", moments, lambda at: ("n1", {"hw_a": at}))
    history.prune(BEGIN + DAY)
    (found,) = history.source().samples(Selector("hw_a"), 0, 1e12)
    assert found.times[0] - BEGIN <= 30.0
    assert found.times[-1] == pytest.approx(BEGIN + 4 * 3600, abs=30.0)
    assert (np.diff(found.times) >= 0).all()


def test_series_that_come_and_go_leave_the_others_whole(tmp_path: Path) -> None:
    def told(at: float) -> tuple[str, dict[str, float]]:
        values = {f'hw_m{{i="{index}"}}': float(index) for index in range(40)}
        values[f'hw_dstate_processes{{wchan="f{at // 60:.0f}"}}'] = 1.0
        return "n1", values

    history = filled(tmp_path / "h.db", np.arange(0.0, 8 * HOUR, 20.0).tolist(), told)
    base = sqlite3.connect(tmp_path / "h.db")
    (most,) = base.execute(
        "SELECT max(n) FROM (SELECT count(*) AS n FROM blocks WHERE family = 'hw_m'"
        " GROUP BY step, start)"
    ).fetchone()
    wide = "SELECT count(*) FROM layouts WHERE keys LIKE '%hw_m%'"
    (layouts,) = base.execute(wide).fetchone()
    base.close()
    assert most == 1, "one block a time"
    assert layouts < 60, "those of rows that are packed are forgotten"
    source = history.source()
    found = source.samples(Selector("hw_dstate_processes", (("wchan", "f5"),)), 0, 1e12)
    assert [round((one.times[0] - BEGIN) / 60) for one in found] in ([5], [6])
    (steady,) = source.samples(Selector("hw_m", (("i", "7"),)), 0, 1e12)
    assert set(steady.values) == {7.0}
    history.append(BEGIN + 9 * HOUR, "n1", told(0.0)[1])
    assert history.source().samples(Selector("hw_m", (("i", "7"),)), BEGIN + 9 * HOUR - 1, 1e12)


def test_a_damaged_block_is_left_out_and_said(tmp_path: Path) -> None:
    history = written(tmp_path / "h.db", 6 * HOUR)
    history.close()
    base = sqlite3.connect(tmp_path / "h.db")
    with base:
        base.execute("UPDATE blocks SET vals = x'00' WHERE start = (SELECT min(start) FROM blocks)")
    base.close()
    source = HistorySource.open(tmp_path / "h.db")
    assert source.query_range(Selector("hw_load1"), BEGIN, BEGIN + 6 * HOUR, 60.0).labels
    assert any("damaged" in note for note in source.notes)


@pytest.mark.parametrize("seed", range(12))
def test_bytes_changed_anywhere_are_an_error_that_names_it_or_left_out(
    tmp_path: Path, seed: int
) -> None:
    written(tmp_path / "h.db", 5 * HOUR).close()
    dice = random.Random(seed)
    data = bytearray((tmp_path / "h.db").read_bytes())
    for _ in range(10):
        at, count = dice.randrange(len(data) - 40), dice.choice([1, 4, 40])
        data[at : at + count] = dice.randbytes(count)
    (tmp_path / "h.db").write_bytes(data)
    try:
        source = HistorySource.open(tmp_path / "h.db")
        for name in source.families():
            source.samples(Selector(name), 0, 1e12)
            source.query_range(Selector(name), BEGIN, BEGIN + 6 * HOUR, 30.0, "max")
        source.span()
    except InputError as error:
        assert "h.db" in str(error)
    file = HistoryFile(tmp_path, "one")
    shutil.move(tmp_path / "h.db", tmp_path / "series-1.db")
    turns = [file.put((), time.time()) for _ in range(3)]
    assert turns[-1], "with it or without it"
    file.close()
