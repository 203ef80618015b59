"""What a plugin's file holds, without running it."""

from __future__ import annotations

from pathlib import Path

import pytest

from ray_sentinel.collect.discovery import entry_points, plugin_files, read_plugin, sources_in
from ray_sentinel.errors import InputError

PYTHON = b"""
from typing import ClassVar
from ray_sentinel import api
from ray_sentinel.api import Collector as Base, Metric

class First(api.Collector):
    name = "first"

class Common(api.Collector):
    interval = 3.0

class Second(Common):
    name: ClassVar[str] = "second"

class Unrelated:
    name = "unrelated"
"""


def found(data: bytes, file: str = "a.py", executable: bool = False) -> list[tuple[str, str, str]]:
    return [
        (source.kind, source.class_name, source.name)
        for source in sources_in(Path("/p") / file, data, executable=executable)
    ]


def test_collectors_of_a_python_file() -> None:
    assert found(PYTHON) == [("python", "First", "first"), ("python", "Second", "second")]


def test_a_program_is_one_collector_named_after_its_file() -> None:
    assert found(b"#!/bin/sh\n", "disks.sh", True) == [("script", "", "disks")]
    assert found(b"\x7fELF...", "disks", True) == [("script", "", "disks")]
    assert found(b"#!/usr/bin/env python3\n", "disks.py", True) == [("script", "", "disks")]


def test_an_executable_bit_alone_makes_no_program_of_a_python_file() -> None:
    assert found(PYTHON, "a.py", True)[0][0] == "python"


@pytest.mark.parametrize(
    ("file", "data", "says"),
    [
        ("a.py", b"class A(\n", "a.py, line 1"),
        ("a.py", b"\0", "a.py"),
        ("a.py", b"x = 1\n", "defines no subclass of Collector"),
        ("a.py", b"class A(Collector):\n    pass\n", "defines no subclass of Collector"),
        ("a.sh", b"#!/bin/sh\n", "chmod +x"),
        ("a.txt", b"notes", "is no plugin"),
    ],
)
def test_what_is_no_plugin_is_told_why(file: str, data: bytes, says: str) -> None:
    with pytest.raises(InputError, match=says.replace("+", r"\+")):
        found(data, file)


def test_deep_nesting_is_told_and_does_not_crash(tmp_path: Path) -> None:
    file = tmp_path / "deep.py"
    file.write_text("x = " + "(" * 5000 + ")" * 5000)
    assert str(file) in read_plugin(file).problem


def test_files_that_may_be_plugins(tmp_path: Path) -> None:
    first, second = tmp_path / "a", tmp_path / "b"
    for folder in (first, second):
        folder.mkdir()
    for name in ("x.py", ".hidden.py", "_private.py", "x.py~", "x.pyc", "y.sh"):
        (first / name).write_text("")
    (second / "y.sh").write_text("")
    (second / "folder.py").mkdir()
    files = plugin_files([first, second, tmp_path / "missing"])
    assert files == {"x.py": first / "x.py", "y.sh": second / "y.sh"}


def test_a_file_that_everybody_may_write_is_not_run(tmp_path: Path) -> None:
    file = tmp_path / "a.sh"
    file.write_text("#!/bin/sh\n")
    file.chmod(0o777)
    assert "chmod o-w" in read_plugin(file).problem
    file.chmod(0o755)
    assert read_plugin(file).problem == ""


def test_a_file_that_goes_between_listing_and_reading(tmp_path: Path) -> None:
    plugin = read_plugin(tmp_path / "gone.py")
    assert "gone.py" in plugin.problem
    assert plugin.sources == ()


def test_installed_collectors_are_named_without_being_imported() -> None:
    sources = {source.name: source for source in entry_points()}
    assert sources["host"].kind == "entry-point"
    assert ":" in sources["host"].target


@pytest.mark.parametrize("base", ["a." * 2000 + "Collector", "-" * 2000 + "1", "f" + "()" * 2000])
def test_a_base_without_end_ends_nothing(tmp_path: Path, base: str) -> None:
    path = tmp_path / "deep.py"
    path.write_text(f'class Deep({base}):\n    name = "deep"\n')
    plugin = read_plugin(path)
    assert [source.name for source in plugin.sources] == ["deep"] or plugin.problem
