"""The embedded history: what is written is what is read."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from ray_sentinel.diagnose.series import Selector
from ray_sentinel.errors import InputError
from ray_sentinel.model.exposition import series_text
from ray_sentinel.store.history.keys import parse_key
from ray_sentinel.store.history.source import HistorySource
from ray_sentinel.store.history.writer import RowPacker, history_image
from tests.support.appended_history import AppendedHistory

NAN = float("nan")


def test_what_is_appended_is_read_back(tmp_path: Path) -> None:
    history = AppendedHistory(tmp_path / "history" / "job.db")
    for second in range(10):
        history.append(100.0 + second, "n1", {"train_step": second, 'p{gpu="0"}': 5.0})
    history.close()
    source = HistorySource.open(tmp_path / "history" / "job.db")
    assert source.families() == ("p", "train_step")
    assert source.span() == (100.0, 109.0)
    assert source.label_sets("p", 100, 109) == [{"gpu": "0", "host": "n1"}]
    grid = source.query_range(Selector("train_step", (("host", "n1"),)), 101.0, 109.0, 2.0, "max")
    assert grid.values.tolist() == [[1, 3, 5, 7, 9]]
    assert source.query_range(Selector("nothing"), 0, 10, 1).values.shape == (0, 11)


def test_nan_samples_come_back_as_not_finite(tmp_path: Path) -> None:
    history = AppendedHistory(tmp_path / "h.db")
    history.append(1.0, "n1", {"loss": NAN})
    assert np.isnan(history.source().samples(Selector("loss"), 0, 2)[0].values[0])
    assert history.source().query_range(Selector("loss"), 1, 1, 1).values[0, 0] == np.inf


def test_a_packer_forgets_hosts_that_are_gone() -> None:
    packer = RowPacker()
    for minute in range(200):
        for host in (f"spot-{minute}", "head"):
            packer.pack(60.0 * minute, host, {"a": minute})
    assert len(packer.places) <= 34
    assert ("head", "a") in packer.places


def test_a_file_keeps_to_its_size_and_thins_the_oldest(tmp_path: Path) -> None:
    path = tmp_path / "h.db"
    history = AppendedHistory(path, max_bytes=1 << 20)
    for second in range(3000):
        history.append(float(second), "n1", {f"m{index}": 1.0 for index in range(40)})
    span = history.source().span()
    assert span is not None
    assert span[1] == 2999.0
    assert span[0] <= 10.0, "the beginning is still there"
    (series,) = history.source().samples(Selector("m1"), -1, 600)
    assert np.diff(series.times).min() >= 10.0
    assert path.stat().st_size < 3 << 20


def test_a_killed_writer_loses_nothing_that_it_appended(tmp_path: Path) -> None:
    path = tmp_path / "h.db"
    script = (
        "import sys; from ray_sentinel.store.history.writer import History, RowPacker\n"
        "history, packer = History(sys.argv[1]), RowPacker()\n"
        "for s in range(1000000):\n"
        "    history.put(packer.pack(float(s), 'n1', {'a': s}))\n"
        "    if s >= 200: print(s, flush=True)\n"
    )
    writer = subprocess.Popen([sys.executable, "-c", script, str(path)], stdout=subprocess.PIPE)
    assert writer.stdout is not None
    told = int(writer.stdout.readline())
    os.kill(writer.pid, signal.SIGKILL)
    writer.wait(timeout=10)
    source = HistorySource.open(path)
    span = source.span()
    assert span is not None
    assert span[1] >= told
    reopened = AppendedHistory(path)
    reopened.append(span[1] + 1, "n1", {"a": 1})
    reopened.close()


def test_a_reader_sees_what_a_writer_goes_on_appending(tmp_path: Path) -> None:
    history = AppendedHistory(tmp_path / "h.db")
    history.append(1.0, "n1", {"a": 1})
    assert HistorySource.open(tmp_path / "h.db").span() == (1.0, 1.0)
    history.append(2.0, "n1", {"a": 1})
    assert HistorySource.open(tmp_path / "h.db").span() == (1.0, 2.0)


@pytest.mark.parametrize("content", [b"", b"not a database at all" * 100, b"SQLite format 3\0"])
def test_a_file_that_is_no_history_is_named(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "x.db"
    path.write_bytes(content)
    with pytest.raises(InputError, match=r"x\.db"):
        HistorySource.open(path)


def test_a_bad_key_writes_nothing(tmp_path: Path) -> None:
    history = AppendedHistory(tmp_path / "h.db")
    with pytest.raises(ValueError, match="not a series"):
        history.append(1.0, "n1", {"good": 1.0, "bad{": 2.0})
    assert history.source().span() is None


def test_what_was_written_beside_a_bad_key_is_undone_whole(tmp_path: Path) -> None:
    history = AppendedHistory(tmp_path / "h.db")
    with pytest.raises(ValueError, match="not a series"):
        history.append(1.0, "n1", {"hw_a": 1.0, "train_b{": 2.0})
    history.append(2.0, "n1", {"hw_a": 3.0})
    history.close()
    source = HistorySource.open(tmp_path / "h.db")
    (series,) = source.samples(Selector("hw_a"), 0, 10)
    assert (series.labels, series.values.tolist()) == ({"host": "n1"}, [3.0])


def test_series_come_and_go_and_a_gap_is_a_gap(tmp_path: Path) -> None:
    history = AppendedHistory(tmp_path / "h.db")
    wanted: dict[str, dict[float, float]] = {}
    for second in range(1, 40):
        gauges = {f'hw_d{{wchan="f{second % 7}"}}': float(second), "hw_load1": 0.5}
        if second % 3:
            gauges['hw_gpu_power_watts{gpu="0"}'] = NAN if second % 2 else 300.0
        history.append(float(second), "n1", gauges)
        for key, value in gauges.items():
            wanted.setdefault(key, {})[float(second)] = value
    source = history.source()
    for key, points in wanted.items():
        name, labels = parse_key(key)
        (series,) = source.samples(Selector(name, tuple(labels.items())), 0, 100)
        assert series.times.tolist() == list(points)
        np.testing.assert_array_equal(series.values, list(points.values()))


def test_hosts_share_a_layout_and_their_own_host_label_wins(tmp_path: Path) -> None:
    history = AppendedHistory(tmp_path / "h.db")
    for host in ("n1", "n2"):
        history.append(1.0, host, {"hw_a": 1.0, 'ray_node_b{host="other"}': 2.0})
    assert history.source().label_sets("hw_a", 0, 2) == [{"host": "n1"}, {"host": "n2"}]
    assert history.source().label_sets("ray_node_b", 0, 2) == [{"host": "other"}]


def test_an_image_is_a_history_file_with_more_beside(tmp_path: Path) -> None:
    history = AppendedHistory(tmp_path / "h.db")
    history.append(1.0, "n1", {"hw_a": 1.0, "train_step": 5.0})
    more = RowPacker().pack(2.0, "n2", {"hw_a": 2.0})
    (tmp_path / "image.db").write_bytes(history_image(more, of=history))
    source = HistorySource.open(tmp_path / "image.db")
    assert source.span() == (1.0, 2.0)
    assert source.label_sets("hw_a", 0, 9) == [{"host": "n1"}, {"host": "n2"}]


def test_rows_that_are_put_twice_are_there_once(tmp_path: Path) -> None:
    history, packer = AppendedHistory(tmp_path / "h.db"), RowPacker()
    history.append(1.0, "n0", {"hw_b": 0.0})
    for second in (2.0, 3.0):
        rows = packer.pack(second, "n1", {"hw_a": second, "train_step": 5.0})
        history.put(rows)
        history.put(rows)
    history.append(4.0, "n1", {"hw_a": 4.0})
    (series,) = history.source().samples(Selector("hw_a"), 0, 9)
    assert (series.labels, series.times.tolist()) == ({"host": "n1"}, [2.0, 3.0, 4.0])


def read_all(path: Path) -> int:
    """How many values a reader gets."""
    source = HistorySource.open(path)
    return sum(
        series.times.size
        for name in source.families()
        for series in source.samples(Selector(name), 0, 1e9)
    )


def test_a_history_cut_anywhere_is_an_error_that_names_it(tmp_path: Path) -> None:
    history, path = AppendedHistory(tmp_path / "h.db"), tmp_path / "series.db"
    for second in range(200):
        history.append(float(second), "n1", {f"hw_m{i}": 1.0 for i in range(50)})
    whole = history_image((), of=history)
    path.write_bytes(whole)
    every = read_all(path)
    assert every
    for part in (0, 1, 99, 4096, len(whole) // 3):
        path.write_bytes(whole[:part])
        with pytest.raises(InputError, match=r"series\.db"):
            read_all(path)
    for seed in range(20):
        dice = random.Random(seed)
        data = bytearray(whole)
        at = dice.randrange(100, len(data) - 500)
        data[at : at + 400] = dice.randbytes(400)
        path.write_bytes(data)
        try:
            assert read_all(path) <= every
        except InputError as error:
            assert "series.db" in str(error)


@pytest.mark.parametrize(
    "labels", [{}, {"a": "b"}, {"a": 'x"y\\z\n', "b": ""}, {"mount": "/a,b={c}"}]
)
def test_keys_go_there_and_back(labels: dict[str, str]) -> None:
    assert parse_key(series_text("m", labels.items())) == ("m", labels)
