from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from ray_sentinel.diagnose.series import Selector
from ray_sentinel.errors import InputError
from ray_sentinel.store.history import History, HistorySource
from ray_sentinel.store.keys import parse_key, series_key

NAN = float("nan")


def test_what_is_appended_is_read_back(tmp_path: Path) -> None:
    history = History(tmp_path / "history" / "job.db")
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
    history = History(tmp_path / "h.db")
    history.append(1.0, "n1", {"loss": NAN})
    assert np.isnan(history.source().samples(Selector("loss"), 0, 2)[0].values[0])
    assert history.source().query_range(Selector("loss"), 1, 1, 1).values[0, 0] == np.inf


def test_memory_keeps_only_the_last_half_hour() -> None:
    history = History()
    for minute in range(200):
        history.append(60.0 * minute, "n1", {"a": minute})
    span = history.source().span()
    assert span is not None
    assert span[1] == 60.0 * 199
    assert span[1] - span[0] <= 1800.0 + 64 * 60.0
    assert "half hour" in history.source().title


def test_a_file_keeps_to_its_size_and_loses_the_oldest(tmp_path: Path) -> None:
    path = tmp_path / "h.db"
    history = History(path, max_bytes=1 << 20)
    for second in range(3000):
        history.append(float(second), "n1", {f"m{index}": 1.0 for index in range(40)})
    span = history.source().span()
    assert span is not None
    assert span[1] == 2999.0
    assert span[0] > 0
    assert path.stat().st_size < 3 << 20


def test_a_killed_writer_loses_nothing_that_it_appended(tmp_path: Path) -> None:
    path = tmp_path / "h.db"
    script = (
        "import sys; from ray_sentinel.store.history import History\n"
        "h = History(sys.argv[1])\n"
        "for s in range(1000000):\n"
        "    h.append(float(s), 'n1', {'a': s})\n"
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
    reopened = History(path)
    reopened.append(span[1] + 1, "n1", {"a": 1})
    reopened.close()


def test_a_reader_sees_what_a_writer_goes_on_appending(tmp_path: Path) -> None:
    history = History(tmp_path / "h.db")
    history.append(1.0, "n1", {"a": 1})
    source = HistorySource.open(tmp_path / "h.db")
    history.append(2.0, "n1", {"a": 1})
    assert source.span() == (1.0, 2.0)


@pytest.mark.parametrize("content", [b"", b"not a database at all" * 100, b"SQLite format 3\0"])
def test_a_file_that_is_no_history_is_named(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "x.db"
    path.write_bytes(content)
    with pytest.raises(InputError, match=r"x\.db"):
        HistorySource.open(path)


def test_a_bad_key_writes_nothing(tmp_path: Path) -> None:
    history = History(tmp_path / "h.db")
    with pytest.raises(ValueError, match="not a series"):
        history.append(1.0, "n1", {"good": 1.0, "bad{": 2.0})
    assert history.source().span() is None


@pytest.mark.parametrize(
    "labels", [{}, {"a": "b"}, {"a": 'x"y\\z\n', "b": ""}, {"mount": "/a,b={c}"}]
)
def test_keys_go_there_and_back(labels: dict[str, str]) -> None:
    assert parse_key(series_key("m", labels)) == ("m", labels)
