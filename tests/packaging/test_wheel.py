"""The wheel, built and installed away from the sources, has all that it needs and nothing else."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = {"ray_sentinel", "ray_sentinel_plugins", "ray_sentinel_exporters"}


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("wheel")
    build = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(out)]
    done = subprocess.run([*build, str(ROOT)], capture_output=True, text=True, timeout=170)
    assert done.returncode == 0, done.stdout + done.stderr
    (made,) = out.glob("*.whl")
    return made


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    target = tmp_path_factory.mktemp("site")
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-index"]
    subprocess.run([*pip, "--target", str(target), str(wheel)], check=True, timeout=120)
    return target


def python(installed: Path, code: str) -> str:
    """The output of a program that sees the installed wheel before anything else."""
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        timeout=60,
        cwd="/",
        env={**os.environ, "PYTHONPATH": str(installed)},
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_it_holds_the_three_packages_and_no_tests(wheel: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    tops = {name.split("/")[0] for name in names if ".dist-info/" not in name}
    assert tops == PACKAGES
    assert not [name for name in names if name.endswith(".pyc") or "/tests/" in name]


def test_every_source_file_is_in_it(wheel: Path) -> None:
    listed = ["git", "-C", str(ROOT), "ls-files", "ray_sentinel", "plugins", "exporters"]
    tracked = subprocess.run(listed, capture_output=True, text=True, check=True).stdout.split()
    inside = {path.removeprefix("plugins/").removeprefix("exporters/") for path in tracked}
    assert inside <= set(zipfile.ZipFile(wheel).namelist())


def test_it_is_typed_and_says_its_licence(wheel: Path) -> None:
    archive = zipfile.ZipFile(wheel)
    names = archive.namelist()
    assert {f"{package}/py.typed" for package in PACKAGES} <= set(names)
    (metadata,) = (name for name in names if name.endswith(".dist-info/METADATA"))
    assert "License-Expression: Apache-2.0" in archive.read(metadata).decode()


def test_its_own_modules_are_used_and_import_nothing_heavy(installed: Path) -> None:
    code = (
        "import sys, json, ray_sentinel;"
        "print(json.dumps([ray_sentinel.__file__, 'ray' in sys.modules, 'torch' in sys.modules]))"
    )
    path, ray, torch = json.loads(python(installed, code))
    assert path.startswith(str(installed))
    assert not ray
    assert not torch


def test_its_entry_points_load(installed: Path) -> None:
    code = (
        "from importlib.metadata import distribution;"
        "points = [p for p in distribution('ray-sentinel').entry_points"
        "          if p.group.startswith('ray_sentinel.')];"
        "[p.load() for p in points]; print(len(points))"
    )
    assert int(python(installed, code)) >= 6


def test_the_command_runs(installed: Path) -> None:
    done = subprocess.run(
        [str(installed / "bin" / "ray-sentinel"), "--version"],
        capture_output=True,
        text=True,
        timeout=60,
        env={**os.environ, "PYTHONPATH": str(installed)},
        check=True,
    )
    assert done.stdout.startswith("ray-sentinel ")


def test_its_pages_are_made_from_its_own_templates(installed: Path) -> None:
    code = (
        "from ray_sentinel.model.diagnosis import Diagnosis, DiagnosisReport, Inventory;"
        "from ray_sentinel.report.html import diagnosis_html;"
        "found = Diagnosis(analysis='a', playbook='p', cause='c', outcome='found', confidence=1.0,"
        "                  root_cause='<b>', window=(0.0, 60.0));"
        "print(diagnosis_html(DiagnosisReport(diagnosis=found, inventory=Inventory(source='s'))))"
    )
    assert "<h1>&lt;b&gt;</h1>" in python(installed, code)
