"""``ray-sentinel collect`` and ``plugins`` as a user runs them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from ray_sentinel.collect.plugins import install_plugin

pytestmark = pytest.mark.integration

GOOD = b"""
import msgspec
from ray_sentinel.api import Collector, Event, Metric, Options
LOAD = Metric("my_load1", "gauge", "Load.", ("scale",))
class Mine(Collector):
    name = "mine"
    class Options(Options, frozen=True):
        scale: float = 1.0
        names: list[str] = msgspec.field(default_factory=list)
    def collect(self):
        load = float((self.context.proc / "loadavg").read_text().split()[0])
        self.log.warning("cannot read the other file")
        yield LOAD(load * self.context.options.scale, ",".join(self.context.options.names))
        yield Event(time=1700000000.0, kind="test.live", message=str(self.context.live))
"""
SKIPS = b"""
from ray_sentinel.api import Collector, Skip
class Skips(Collector):
    name = "skips"
    def collect(self):
        raise Skip("no such hardware here")
"""
HANGS = b"""
import time
from ray_sentinel.api import Collector
class Hangs(Collector):
    name = "hangs"
    deadline = 1.0
    def collect(self):
        time.sleep(1000)
"""


@pytest.fixture
def plugins(tmp_path: Path) -> Path:
    folder = tmp_path / "plugins"
    for name, data in (("mine.py", GOOD), ("skips.py", SKIPS), ("hangs.py", HANGS)):
        install_plugin(folder, name, data)
    return folder


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    for root in ("proc/sys/kernel", "sys", "dev"):
        (tmp_path / "tree" / root).mkdir(parents=True)
    (tmp_path / "tree/proc/loadavg").write_text("2.50 1.0 1.0 1/100 99\n")
    (tmp_path / "tree/proc/sys/kernel/hostname").write_text("gpu-17.cluster.example\n")
    return tmp_path / "tree"


def sentinel(plugins: Path, *args: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "ray_sentinel.cli.main", *map(str, args)],
        env={**os.environ, "RAY_SENTINEL_AGENT__PLUGIN_DIR": str(plugins)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def on(tree: Path) -> list[object]:
    return ["--proc", tree / "proc", "--sys", tree / "sys", "--dev", tree / "dev"]


def document(done: subprocess.CompletedProcess[str]) -> Any:
    return json.loads(done.stdout)


def test_exposition_of_a_captured_tree(plugins: Path, tree: Path) -> None:
    done = sentinel(plugins, "collect", "mine", *on(tree))
    assert done.returncode == 0
    assert done.stdout.splitlines() == [
        "# HELP my_load1 Load.",
        "# TYPE my_load1 gauge",
        'my_load1{host="gpu-17",scale=""} 2.5',
        "# EVENT 1700000000.000 warning test.live False",
    ]
    assert done.stderr == "mine: cannot read the other file\n"


def test_json_and_settings(plugins: Path, tree: Path) -> None:
    done = sentinel(
        plugins, "collect", "mine", *on(tree), "--json", "--set", "scale=2", "--set", 'names=["a"]'
    )
    found = document(done)
    assert found["collector"] == "mine"
    assert (found["success"], found["skipped"]) == (True, "")
    assert found["problems"] == ["cannot read the other file"]
    assert found["events"][0]["kind"] == "test.live"
    assert found["seconds"] > 0
    (family,) = found["families"]
    assert (family["name"], family["type"], family["help"]) == ("my_load1", "gauge", "Load.")
    (sample,) = family["samples"]
    assert sample["value"] == 5.0
    assert sample["labels"] == {"host": "gpu-17", "scale": "a"}


def test_a_live_machine(plugins: Path) -> None:
    found = document(sentinel(plugins, "collect", "mine", "--json", "--host", "me"))
    assert found["events"][0]["message"] == "True"
    assert found["families"][0]["samples"][0]["labels"]["host"] == "me"


def test_a_tree_without_the_file_is_a_failure_of_this_collector(plugins: Path, tree: Path) -> None:
    (tree / "proc/loadavg").unlink()
    done = sentinel(plugins, "collect", "mine", *on(tree))
    assert (done.returncode, done.stdout) == (1, "")
    assert "FileNotFoundError" in done.stderr


def test_a_tree_may_lack_a_root(plugins: Path, tree: Path) -> None:
    args = ["--proc", tree / "proc", "--sys", tree / "no-sys"]
    done = sentinel(plugins, "collect", "mine", *args)
    assert done.returncode == 0
    assert "no-sys is not there" in done.stderr


def test_roots_that_are_not_named_are_never_this_machines(plugins: Path, tree: Path) -> None:
    install_plugin(
        plugins,
        "roots.py",
        b"""
from ray_sentinel.api import Collector, Event
class Roots(Collector):
    name = "roots"
    def collect(self):
        yield Event(time=1.0, kind="test.sys", message=str(self.context.sys))
""",
    )
    found = document(sentinel(plugins, "collect", "roots", "--proc", tree / "proc", "--json"))
    assert found["events"][0]["message"] == str(tree / "sys")
    found = document(sentinel(plugins, "collect", "roots", "--json"))
    assert found["events"][0]["message"] == "/sys"


def test_skipped_is_no_failure(plugins: Path) -> None:
    done = sentinel(plugins, "collect", "skips")
    assert (done.returncode, done.stdout) == (0, "")
    assert done.stderr == "skips: left out: no such hardware here\n"
    found = document(sentinel(plugins, "collect", "skips", "--json"))
    assert (found["success"], found["skipped"]) == (True, "no such hardware here")


def test_what_could_not_be_read_before_the_first_run(plugins: Path, tree: Path) -> None:
    """The amdgpu collector looks for its cards when it is made."""
    cards = tree / "sys/class/drm"
    for number in range(257):
        device = cards / f"card{number}" / "device"
        device.mkdir(parents=True)
        (device / "vendor").write_text("0x1002\n")
    done = sentinel(plugins, "collect", "amdgpu", *on(tree))
    assert f"{cards}: there are more than 256; the rest is left out" in done.stderr


def test_a_missed_deadline(plugins: Path) -> None:
    done = sentinel(plugins, "collect", "hangs", "--deadline", "0.5", "--json")
    assert done.returncode == 1
    found = document(done)
    assert found["success"] is False
    assert "missed its deadline of 0.5 s in collect (hangs.py:" in found["problems"][0]


@pytest.mark.parametrize(
    ("args", "says"),
    [
        (["collect", "mien"], "did you mean mine?"),
        (["collect", "zzz"], "there are: "),
        (["collect"], "name one collector, or give --all"),
        (["collect", "mine", "--all"], "name one collector, or give --all"),
        (["collect", "mine", "--set", "scale"], "write KEY=VALUE"),
        (["collect", "mine", "--deadline", "0"], "more than 0"),
        (["collect", "mine", "--proc", "/no/such"], "/no/such is not a folder"),
        (["collect", "mine", "--proc", "/etc/hostname", "--sys", "/"], "is not a folder"),
        (["plugins", "check", "/no/such.py"], "there is no such file"),
    ],
)
def test_wrong_usage(plugins: Path, args: list[str], says: str) -> None:
    done = sentinel(plugins, *args)
    assert done.returncode == 2
    assert says in done.stderr


def test_a_setting_that_the_collector_does_not_know(plugins: Path) -> None:
    done = sentinel(plugins, "collect", "mine", "--set", "scal=2")
    assert done.returncode == 2
    assert "[collectors.mine]: unknown key scal; did you mean scale?" in done.stderr


def test_all_at_once(plugins: Path, tree: Path) -> None:
    done = sentinel(plugins, "collect", "--all", *on(tree), "--json", "--deadline", "2")
    found = {row["collector"]: row for row in document(done)}
    assert {"mine", "skips", "hangs", "host"} <= found.keys()
    assert done.returncode == 1
    assert found["mine"]["success"]
    assert not found["hangs"]["success"]


def test_plugins_list_and_check(plugins: Path, tmp_path: Path) -> None:
    rows = {row["name"]: row for row in document(sentinel(plugins, "plugins", "list", "--json"))}
    assert rows["mine"]["state"] == "ok"
    assert rows["mine"]["metrics"] == ["my_load1"]
    assert (rows["skips"]["state"], rows["skips"]["message"]) == (
        "skipped",
        "no such hardware here",
    )
    assert rows["hangs"]["state"] == "failed"
    broken = tmp_path / "broken.py"
    broken.write_text("class A(\n")
    done = sentinel(plugins, "plugins", "check", plugins / "mine.py", broken)
    assert done.returncode == 1
    assert "line 1" in done.stdout.replace("\n", " ")
    assert sentinel(plugins, "plugins", "check", plugins / "mine.py").returncode == 0
    known = sentinel(plugins, "plugins", "list", "--no-run", "--json")
    assert known.returncode == 0
    assert {row["state"] for row in document(known)} == {"known"}
    assert document(sentinel(plugins, "plugins", "dir", "--json"))["dir"] == str(plugins)
