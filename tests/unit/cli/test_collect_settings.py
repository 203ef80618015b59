"""Settings of ``collect NAME --set``: relative places are those of the caller."""

from __future__ import annotations

from pathlib import Path

import pytest

from ray_sentinel.cli.main import main
from tests.support.event_files import event, framed


@pytest.mark.parametrize("place", ["tb", "./tb", "../{name}/tb"])
def test_a_relative_folder_is_where_the_caller_stands(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
    place: str,
) -> None:
    (tmp_path / "tb").mkdir()
    (tmp_path / "tb" / "events.out.tfevents.1.a").write_bytes(framed(event(7)))
    monkeypatch.chdir(tmp_path)
    folder = place.format(name=tmp_path.name)
    assert main(["collect", "tensorboard", "--set", f"folder={folder}"]) == 0
    assert " 7.0\n" in capfd.readouterr().out
