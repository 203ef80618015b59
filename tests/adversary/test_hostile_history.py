"""A history file from anybody: nothing in it is run, and reading it is bounded."""

from __future__ import annotations

import json
import os
import sqlite3
import subprocess
import sys
import zlib
from pathlib import Path

import numpy as np
import pytest

from ray_sentinel.diagnose.series import Selector
from ray_sentinel.errors import InputError
from ray_sentinel.store.history import source as history_source
from ray_sentinel.store.history.source import MOST_COPIED, HistorySource
from tests.support.appended_history import AppendedHistory

BEGIN = 1.7e9
MEMORY = 120 << 20


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """A history of an hour of ours."""
    path = tmp_path / "series-20231114T221320Z.db"
    history = AppendedHistory(path)
    for second in range(0, 3600, 60):
        history.append(BEGIN + second, "n1", {"hw_load1": 1.0, "train_step": float(second)})
    history.close()
    return path


def changed(file: Path, script: str) -> None:
    base = sqlite3.connect(file)
    base.executescript(script)
    base.close()


def read_all(file: Path) -> HistorySource:
    source = HistorySource.open(file)
    for name in source.families():
        source.samples(Selector(name), 0, 1e12)
    source.span()
    source.close()
    return source


ENDLESS = """WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n)
             SELECT x AS layout, 1.0 AS time, 1 AS host, x'00' AS vals FROM n"""
FOREIGN = {
    "a view in place of a table": f"DROP TABLE moments; CREATE VIEW moments AS {ENDLESS};",
    "a view beside them": f"CREATE VIEW more AS {ENDLESS};",
    "a trigger": "CREATE TRIGGER t AFTER INSERT ON hosts BEGIN DELETE FROM moments; END;",
    "a virtual table": "DROP TABLE moments; CREATE VIRTUAL TABLE moments"
    " USING fts5(layout, time, host, vals);",
    "a computed column": "DROP TABLE moments; CREATE TABLE moments (layout INTEGER, time REAL,"
    " host INTEGER, vals BLOB AS (zeroblob(900000000)));",
    "a table without its columns": "DROP TABLE moments; CREATE TABLE moments (layout, time);",
    "no such table": "DROP TABLE hosts;",
}


@pytest.mark.parametrize("name", FOREIGN)
def test_a_file_with_more_than_plain_tables_of_ours_is_refused(file: Path, name: str) -> None:
    changed(file, FOREIGN[name])
    with pytest.raises(InputError, match=rf"{file.name} is not a history of ours: .*triage"):
        HistorySource.open(file)


def test_a_question_that_takes_too_long_is_an_error(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = ((1, BEGIN + 1e-3 * number, 1, b"12345678") for number in range(50_000))
    base = sqlite3.connect(file)
    with base:
        base.executemany("INSERT INTO moments VALUES (?, ?, ?, ?)", rows)
    base.close()
    source = HistorySource.open(file)
    monkeypatch.setattr(history_source, "QUERY_SECONDS", -1.0)
    with pytest.raises(InputError, match=file.name):
        source.samples(Selector("hw_load1"), 0, 1e12)
    with pytest.raises(InputError, match=file.name):
        source.span()


def test_more_keys_than_any_cluster_has_are_refused(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(history_source, "MOST_KEYS_BYTES", 10_000)
    assert HistorySource.open(file).families()
    base = sqlite3.connect(file)
    with base:
        keys = json.dumps([f"hw_m{number}" for number in range(1000)])
        base.execute("INSERT INTO layouts (keys) VALUES (?)", (keys,))
    base.close()
    with pytest.raises(InputError, match="more series than can be read"):
        HistorySource.open(file).families()


def test_more_samples_than_fit_into_memory_are_refused(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(history_source, "MOST_FAMILY_BYTES", 100)
    with pytest.raises(InputError, match="more of hw_load1 than can be read"):
        read_all(file)


READER = """
import resource, sys
from pathlib import Path
from tests.adversary.test_hostile_history import read_all
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
source = read_all(Path(sys.argv[1]))
assert any("damaged" in note for note in source.notes), source.notes
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
"""


@pytest.mark.parametrize("hosts", [1, 1_000_000])
def test_a_block_that_unpacks_to_half_a_gigabyte_is_left_out(file: Path, hosts: int) -> None:
    squeeze, zeros = zlib.compressobj(), bytes(1 << 20)
    values = b"".join([*(squeeze.compress(zeros) for _ in range(512)), squeeze.flush()])
    numbers = np.arange(hosts, dtype=np.int64).tobytes()
    base = sqlite3.connect(file)
    with base:
        base.execute("UPDATE blocks SET hosts = ?, vals = ?", (numbers, values))
    base.close()
    command = [sys.executable, "-c", READER, str(file)]
    done = subprocess.run(command, check=True, capture_output=True, text=True, timeout=60)
    assert int(done.stdout) << 10 < MEMORY


@pytest.mark.parametrize("suffix", ["", "-wal"])
def test_what_is_no_regular_file_is_not_read(file: Path, suffix: str) -> None:
    place = file.with_name(file.name + suffix)
    place.unlink(missing_ok=True)
    os.mkfifo(place)
    with pytest.raises(InputError, match=f"{place.name} is no regular file"):
        HistorySource.open(file)
    place.unlink()
    place.symlink_to("/dev/zero")
    with pytest.raises(InputError, match=f"{place.name} is no regular file"):
        HistorySource.open(file)


def test_a_log_that_claims_any_size_is_not_copied(file: Path) -> None:
    log = file.with_name(f"{file.name}-wal")
    log.touch()
    os.truncate(log, MOST_COPIED + 1)
    with pytest.raises(InputError, match="it has more than 2 GiB"):
        HistorySource.open(file)


def test_times_that_no_clock_shows_are_no_part_of_its_span(file: Path) -> None:
    rows = "SELECT layout, {}, host, vals FROM moments LIMIT 1"
    for time in ("1e308", "-1e308", "'x'"):
        changed(file, f"INSERT INTO moments {rows.format(time)};")
    source = HistorySource.open(file)
    assert source.span() == (BEGIN, BEGIN + 3540)
    source.close()
