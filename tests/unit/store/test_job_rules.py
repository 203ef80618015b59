"""The user's rules: used while they are good, tried again when they change."""

from __future__ import annotations

from pathlib import Path

import pytest

from ray_sentinel.store.prometheus.files import JobFiles
from ray_sentinel.store.prometheus.job import UserRules


@pytest.fixture
def files(tmp_path: Path) -> JobFiles:
    (tmp_path / "rules").mkdir()
    return JobFiles(tmp_path)


def refusal(files: JobFiles) -> str:
    return f'level=error msg="loading groups failed" err="{files.folder}/rules/own.yml: bad"'


def test_bad_ones_are_left_out_until_they_change(files: JobFiles) -> None:
    rules = UserRules(files)
    assert not rules.changed()
    assert not rules.refused("opening storage failed")
    assert rules.used
    assert rules.refused(refusal(files))
    assert not rules.used
    (files.folder / "rules" / "own.yml").write_text("groups: []")
    assert rules.changed()
    assert rules.used
    assert not rules.changed()


def test_only_what_is_said_after_they_were_read_counts(files: JobFiles) -> None:
    files.log.write_text(refusal(files) + "\n")
    rules = UserRules(files)
    assert rules.objection() == "", "it was not told to read any"
    rules.mark_reload()
    assert rules.objection() == "", "that was about earlier ones"
    with files.log.open("a") as log:
        log.write("level=info msg=well\n")
    assert rules.objection() == ""
    with files.log.open("a") as log:
        log.write(refusal(files) + "\n")
    assert "own.yml" in rules.objection()
    assert not rules.used
    assert rules.objection() == "", "said once"
