"""Plugin folders over time."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from ray_sentinel.collect.plugins import PluginFolders, install_plugin, plugin_folder
from ray_sentinel.config import AgentConfig, Config
from ray_sentinel.errors import InputError

SCRIPT = b"#!/bin/sh\necho x 1\n"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    path = tmp_path / "plugins"
    path.mkdir()
    return path


@pytest.fixture
def folders(folder: Path, tmp_path: Path) -> PluginFolders:
    return PluginFolders([folder, tmp_path / "pushed"], tmp_path / "copies")


def test_each_version_is_run_from_a_copy_of_its_own(folder: Path, folders: PluginFolders) -> None:
    install_plugin(folder, "a.sh", SCRIPT)
    (old,) = folders.scan()
    install_plugin(folder, "a.sh", SCRIPT + b"# newer\n")
    (new,) = folders.scan()
    targets = [Path(plugin.sources[0].target) for plugin in (old, new)]
    assert targets[0] != targets[1]
    assert targets[0].read_bytes() == SCRIPT
    assert os.access(targets[0], os.X_OK)
    assert old.sources[0].origin == new.sources[0].origin == str(folder / "a.sh")
    assert old.sources[0].digest != new.sources[0].digest


def test_an_unchanged_file_is_not_read_again(folder: Path, folders: PluginFolders) -> None:
    install_plugin(folder, "a.sh", SCRIPT)
    (first,) = folders.scan()
    (second,) = folders.scan()
    assert second is first


def test_a_copy_that_was_tidied_away_is_made_again(folder: Path, folders: PluginFolders) -> None:
    install_plugin(folder, "a.sh", SCRIPT)
    (plugin,) = folders.scan()
    Path(plugin.sources[0].target).unlink()
    (again,) = folders.scan()
    assert Path(again.sources[0].target).read_bytes() == SCRIPT


def test_what_was_pushed_stands_for_what_lies_in_the_shared_folder(
    folder: Path, folders: PluginFolders, tmp_path: Path
) -> None:
    install_plugin(folder, "a.sh", SCRIPT)
    install_plugin(tmp_path / "pushed", "a.sh", SCRIPT + b"# pushed\n")
    (plugin,) = folders.scan()
    assert plugin.path == tmp_path / "pushed" / "a.sh"


def test_a_file_that_is_gone_is_gone(folder: Path, folders: PluginFolders) -> None:
    install_plugin(folder, "a.sh", SCRIPT)
    assert len(folders.scan()) == 1
    (folder / "a.sh").unlink()
    assert folders.scan() == ()


def test_a_folder_that_cannot_be_read_keeps_what_was_there(
    folder: Path, folders: PluginFolders, monkeypatch: pytest.MonkeyPatch
) -> None:
    install_plugin(folder, "a.sh", SCRIPT)
    before = folders.scan()

    def stale(path: object) -> None:
        raise OSError(116, "Stale file handle", str(path))

    monkeypatch.setattr(os, "scandir", stale)
    assert folders.scan() == before
    assert "Stale file handle" in folders.problem
    monkeypatch.undo()
    assert folders.scan() == before
    assert folders.problem == ""


def test_install_is_whole_or_not_at_all(tmp_path: Path) -> None:
    path = install_plugin(tmp_path / "new", "a.py", b"x = 1\n")
    assert path.stat().st_mode & 0o777 == 0o600
    assert [file.name for file in path.parent.iterdir()] == ["a.py"]
    with pytest.raises(InputError, match="cannot be written"):
        install_plugin(path, "b.py", b"")


@pytest.mark.parametrize("name", ["", ".", "..", "../x.py", "a/b.py", ".hidden", "x" * 200, "a\n"])
def test_a_name_must_be_a_plain_file_name(tmp_path: Path, name: str) -> None:
    with pytest.raises(InputError, match="name of a plugin"):
        install_plugin(tmp_path, name, b"")


def test_the_folder_is_configured_or_lies_with_the_logs(tmp_path: Path) -> None:
    assert plugin_folder(Config(log_dir=str(tmp_path))) == tmp_path / "plugins"
    assert plugin_folder(Config(agent=AgentConfig(plugin_dir="/x"))) == Path("/x")
