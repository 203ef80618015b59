"""What has a file's name and is none holds no reader up."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from ray_sentinel.regular_file import open_regular, read_regular
from ray_sentinel.store.event_files.hparams import read_hparams
from ray_sentinel.store.event_files.records import read_events
from ray_sentinel.store.joblogs import read_ends, saved_totals
from ray_sentinel.store.prometheus.tsdb import inspect

BLOCK = "01ABCDEFGHJKMNPQRSTVWXYZ00"
META = '{"minTime": 0, "maxTime": 7200000}'


def fifo(path: Path) -> None:
    os.mkfifo(path)


def device(path: Path) -> None:
    path.symlink_to("/dev/zero")


@pytest.fixture(params=[fifo, device], ids=["fifo", "device"])
def odd(request: pytest.FixtureRequest) -> Callable[[Path], None]:
    return request.param  # type: ignore[no-any-return]


def test_a_file_and_a_link_to_one_are_read(tmp_path: Path) -> None:
    file, link = tmp_path / "file", tmp_path / "link"
    file.write_bytes(b"text")
    link.symlink_to(file)
    assert read_regular(link, 4) == b"text"
    with pytest.raises(OSError, match="larger than 3 bytes"):
        read_regular(file, 3)


def test_anything_else_is_an_error(tmp_path: Path, odd: Callable[[Path], None]) -> None:
    odd(tmp_path / "odd")
    with pytest.raises(OSError, match="no regular file"):
        open_regular(tmp_path / "odd")
    with pytest.raises(IsADirectoryError):
        open_regular(tmp_path)


def test_readers_of_a_jobs_folder_go_on(tmp_path: Path, odd: Callable[[Path], None]) -> None:
    for name in ("hparams.yaml", "events.out.tfevents.1", "job.log", "trainer_state.json"):
        odd(tmp_path / name)
    notes: list[str] = []
    assert read_hparams(tmp_path, notes) == {}
    assert list(read_events(tmp_path / "events.out.tfevents.1", notes)) == []
    assert [note for note in notes if "no regular file" in note] == notes
    assert len(notes) == 2
    assert list(read_ends(tmp_path / "job.log")) == []
    assert list(saved_totals(tmp_path)) == []


@pytest.mark.parametrize("name", ["meta.json", "index"])
def test_a_block_of_a_prometheus_is_broken(
    tmp_path: Path, odd: Callable[[Path], None], name: str
) -> None:
    block = tmp_path / BLOCK
    block.mkdir()
    (block / "meta.json").write_text(META)
    (block / name).unlink(missing_ok=True)
    odd(block / name)
    (broken,) = inspect(tmp_path).broken
    assert "no regular file" in broken
