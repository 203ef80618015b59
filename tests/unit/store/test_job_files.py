"""The files beside a job's Prometheus: what is written, and what is read from its log."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from ray_sentinel.store.alerts_and_dashboards import RULES_FILE, rules_file
from ray_sentinel.store.prometheus import files as job_files
from ray_sentinel.store.prometheus.files import JobFiles

ULID = "01M7WKNY0802537T9WYAKWGJGN"


@pytest.fixture
def files(tmp_path: Path) -> JobFiles:
    return JobFiles(tmp_path / "prometheus")


def test_the_configuration_names_our_rules_and_the_users(files: JobFiles) -> None:
    files.write_config(old_samples=True, own_rules=True)
    names = yaml.safe_load(files.config.read_text())["rule_files"]
    assert names == [str(files.folder / RULES_FILE), str(files.folder / "rules" / "*.yml")]
    assert (files.folder / RULES_FILE).read_text() == rules_file()
    files.write_config(old_samples=True, own_rules=False)
    assert yaml.safe_load(files.config.read_text())["rule_files"] == names[:1]


def test_what_is_the_same_is_not_written_again(files: JobFiles) -> None:
    files.write_targets(("a:1",), {})
    path = files.folder / "agents.json"
    before = path.stat().st_ino
    files.write_targets(("a:1",), {})
    assert path.stat().st_ino == before
    files.write_targets(("a:1", "b:1"), {})
    assert path.stat().st_ino != before, "replaced whole: it is never seen half written"
    path.unlink()
    files.write_targets(("a:1", "b:1"), {})
    assert path.exists(), "somebody removed it"


def test_the_users_rules_are_told_apart_by_their_change(files: JobFiles) -> None:
    assert files.user_rules() == ()
    folder = files.folder / "rules"
    folder.mkdir(parents=True)
    (folder / "a.yml").write_text("groups: []")
    first = files.user_rules()
    assert [name for name, *_ in first] == ["a.yml"]
    (folder / "a.yml").write_text("groups: [ ]")
    (folder / "notes.txt").write_text("")
    assert files.user_rules() != first
    assert len(files.user_rules()) == 1


@pytest.mark.parametrize(
    ("lines", "words"),
    [
        (["level=info msg=well", 'level=error err="no luck"', "level=info msg=bye"], "no luck"),
        (
            [
                'level=error msg="loading groups failed" err="x/rules/own.yml: bad"',
                'level=error err="error loading config"',
            ],
            "own.yml",
        ),
        (["prometheus: error: unknown long flag '--x'"], "unknown long flag"),
        (["time=now level=ERROR msg=broken", "time=now level=INFO msg=bye"], "broken"),
        (["one", "two"], "two"),
    ],
)
def test_the_line_that_says_why(lines: list[str], words: str, files: JobFiles) -> None:
    files.folder.mkdir()
    files.log.write_text("\n".join(lines) + "\n")
    assert words in files.last_words()


def test_without_a_log_there_are_no_words(files: JobFiles) -> None:
    assert files.last_words() == ""
    files.folder.mkdir()
    files.log.write_text("")
    assert files.last_words() == ""


def test_only_the_users_rules_can_be_blamed(files: JobFiles) -> None:
    own = f'msg="loading groups failed" err="{files.folder}/rules/own.yml: bad"'
    assert files.blames_rules(own)
    assert not files.blames_rules('msg="loading groups failed" err="/elsewhere/x.yml: bad"')
    assert not files.blames_rules(f"{files.folder}/rules/own.yml is read")


def test_only_blocks_that_keep_it_from_starting_are_moved(files: JobFiles) -> None:
    (files.data / ULID).mkdir(parents=True)
    assert files.set_aside(f"compaction of {ULID} failed") == []
    assert files.set_aside("opening storage failed: the disk is gone") == []
    (moved,) = files.set_aside(f"opening storage failed: {ULID}: invalid size")
    assert Path(moved).is_dir()
    assert not (files.data / ULID).exists()


def test_the_log_is_bounded(files: JobFiles, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(job_files, "MAX_LOG_BYTES", 100)
    files.folder.mkdir()
    files.bound_log()
    files.log.write_text("x" * 101)
    files.bound_log()
    assert files.log.read_text() == ""
    assert files.log.with_suffix(".log.1").read_text() == "x" * 101


def test_the_space_that_is_left(files: JobFiles) -> None:
    assert files.free_bytes() is None, "the folder is not there yet"
    files.folder.mkdir()
    assert (files.free_bytes() or 0) > 0
