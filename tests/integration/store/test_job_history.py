"""Whole jobs in the embedded history, through the command line: live, by the page, and after."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import NamedTuple

import pytest

from ray_sentinel.cli.main import main
from ray_sentinel.clock import FakeClock
from ray_sentinel.diagnose.series import Selector
from ray_sentinel.model.status import Status
from ray_sentinel.store.history.file import HistoryFile
from ray_sentinel.store.history.source import HistorySource
from ray_sentinel.store.history.writer import history_image
from ray_sentinel.web.page import Page
from ray_sentinel.web.routes import PageSource
from tests.support.small_disk import small_disk as mounted
from tests.support.told_history import ToldHistory
from tests.support.tsdb_scenarios import ranges
from tests.support.tsdb_scenarios.catalogue import scenario
from tests.support.tsdb_scenarios.history import keep
from tests.support.tsdb_scenarios.truth import Truth

pytestmark = pytest.mark.integration
HOURS = 26.0


@pytest.fixture(scope="module", autouse=True)
def _every_ten_seconds() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ranges, "INTERVAL", (10.0, 10.0))
        yield


class KeptJob(NamedTuple):
    """A job of more than a day whose coordinator still runs; its log folder."""

    folder: Path
    file: HistoryFile
    truth: Truth


def written(folder: Path, name: str) -> KeptJob:
    planted = scenario(name)
    job = type(planted)(name, planted.build, minutes=60 * HOURS, hosts=3)
    world, truth = job.make(4, gpus=4, style="ours")
    file = HistoryFile(folder / "history", "d1")
    keep(world.series(), file)
    return KeptJob(folder, file, truth)


@pytest.fixture(scope="module")
def hung(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KeptJob]:
    """Written once, which takes seconds: first the tests for which it runs, then those that end
    it."""
    kept = written(tmp_path_factory.mktemp("hung"), "hang-port-down")
    yield kept
    kept.file.close()


def asked(capsys: pytest.CaptureFixture[str], *words: str) -> dict[str, object]:
    code = main(["diagnose", *words, "--json"])
    found: dict[str, object] = json.loads(capsys.readouterr().out)
    assert code == (0 if found["outcome"] == "healthy" else 1)
    return found


def right(found: dict[str, object], truth: Truth) -> bool:
    culprits: list[dict[str, str]] = found["culprits"]  # type: ignore[assignment]
    start, end = found["inventory"]["span"]  # type: ignore[index, call-overload]
    assert end - start > (HOURS - 0.5) * 3600
    return {one["host"] for one in culprits} == truth.hosts


def status(file: HistoryFile, now: float, *, here: bool) -> Status:
    return Status(state="hung", verdict="", time=now, log_dir=str(file.path),
                  history=str(file.path) if here else "/elsewhere/history/s.db")  # fmt: skip


@pytest.mark.parametrize("here", [True, False])
def test_the_page_gives_the_whole_job(
    hung: KeptJob, here: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    file = hung.file
    assert file.path is not None
    assert file.history is not None
    now = file.path.stat().st_mtime
    image = partial(history_image, (), of=file.history)
    source = PageSource(lambda: status(file, now, here=here), lambda: (), image)
    page = Page(source, 0)
    try:
        assert right(asked(capsys, page.url), hung.truth)
    finally:
        page.close()


@pytest.mark.parametrize("name", ["gpu-clock", "healthy-no-checkpoints"])
def test_a_day_is_diagnosed_while_it_runs_and_when_it_has_ended(
    tmp_path: Path, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    is_diagnosed(written(tmp_path, name), capsys)


def test_a_day_that_ends_in_a_hang_is_diagnosed_the_same(
    hung: KeptJob, capsys: pytest.CaptureFixture[str]
) -> None:
    is_diagnosed(hung, capsys)


def is_diagnosed(kept: KeptJob, capsys: pytest.CaptureFixture[str]) -> None:
    """While it runs, and when it has ended."""
    live = asked(capsys, str(kept.folder))
    assert right(live, kept.truth)
    path = kept.file.path
    kept.file.close()
    assert right(asked(capsys, str(kept.folder)), kept.truth)
    assert right(asked(capsys, str(path)), kept.truth)


def test_a_folder_whose_newest_history_is_damaged_gives_the_one_before(
    hung: KeptJob, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    hung.file.close()
    shutil.copytree(hung.folder, tmp_path, dirs_exist_ok=True)
    bad = tmp_path / "history" / "series-99990101T000000Z.db"
    bad.write_bytes(b"SQLite format 3\0" + b"\1" * 5000)
    found = asked(capsys, str(tmp_path))
    assert right(found, hung.truth)
    assert bad.name in json.dumps(found["inventory"])
    bad.rename(bad.with_suffix(".only.db"))
    for path in (tmp_path / "history").glob("series-2*"):
        path.unlink()
    assert main(["diagnose", str(tmp_path), "--json"]) == 2
    assert "only.db" in capsys.readouterr().err


def test_a_real_disk_that_is_full(tmp_path: Path) -> None:
    clock = FakeClock()
    with mounted(tmp_path / "disk", "2m") as disk:
        keeper = ToldHistory(disk / "history", clock)

        def turn(value: float) -> None:
            keeper.take("n1", {f'hw_m{{i="{i}"}}': value + i for i in range(300)})
            clock.advance(20.0)
            keeper.save_when_due()

        turn(0.0)
        assert keeper.notes == ()
        (disk / "other").write_bytes(b"x" * (1 << 20))
        value = 0.0
        while not keeper.notes:
            value += 1.0
            assert value < 1000, "it must be full at some time"
            turn(value)
        for _ in range(5):
            value += 1.0
            turn(value)
        assert len(keeper.notes) == 1
        assert keeper.image()[:6] == b"SQLite"
        (disk / "other").unlink()
        turn(value + 1.0)
        assert keeper.notes == ()
        assert keeper.file is not None
        assert keeper.file.history is not None
        lately = [(at, values['hw_m{i="7"}']) for at, _, values in keeper.recent()]
        assert keeper.path is not None
        whole = HistorySource.open(keeper.path)
        (on_disk,) = whole.samples(Selector("hw_m", (("i", "7"),)), lately[0][0] - 1, 1e12)
        assert on_disk.times.tolist() == [at for at, _ in lately], "nothing is missing"
        assert on_disk.values.tolist() == [value for _, value in lately]
        keeper.close()
