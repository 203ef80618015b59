"""Another user of the machine lays files where we look for ours: none of them is run or obeyed."""

from __future__ import annotations

import json
import os
import py_compile
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from ray_sentinel import config, process
from ray_sentinel.actors.agent.node_monitor import run_folder
from ray_sentinel.actors.deployment.background import NodeLock
from ray_sentinel.collect.discovery import read_plugin
from ray_sentinel.collect.plugins import PluginFolders, install_plugin
from ray_sentinel.doctor.catalogue import read_source
from ray_sentinel.errors import ConfigError, InputError
from ray_sentinel.logs.catalogue import load_catalogue
from ray_sentinel.model.identity import Node
from ray_sentinel.store.prometheus.files import JobFiles
from ray_sentinel.store.prometheus.job import UserRules
from ray_sentinel.trusted_path import TRUSTED_UIDS_VARIABLE
from tests.support.collecting import GOOD, HEAD, CollectingNode
from tests.support.other_user import NOBODY, as_nobody

PLUGIN = HEAD + GOOD.replace("\n    ", "\n")


@pytest.fixture
def shared() -> Iterator[Path]:
    """A folder like ``/tmp``: everybody may write there, nobody may take what is another's."""
    folder = Path(tempfile.mkdtemp(prefix="shared-"))
    folder.chmod(0o1777)
    yield folder
    shutil.rmtree(folder)


def put(path: Path, text: str, mode: int = 0o644) -> None:
    """Called as the other user."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(mode)


@pytest.fixture
def node(tmp_path: Path) -> Iterator[CollectingNode]:
    one = CollectingNode(tmp_path / "node")
    yield one
    one.stop()


def test_a_plugin_folder_that_somebody_else_made_first_is_refused(
    shared: Path, node: CollectingNode
) -> None:
    log_dir = shared / f"ray_sentinel-{os.getuid()}" / "job"
    bomb = PLUGIN.replace("good", "evil") + f"\nopen({str(shared / 'ran')!r}, 'w')\n"
    as_nobody(put, log_dir / "plugins" / "evil.py", bomb)
    as_nobody(put, log_dir / "plugins" / "evil.sh", f"#!/bin/sh\ntouch {shared}/ran\n", 0o755)
    node.write("good.py", GOOD)
    node.settings["plugin_dirs"] = (log_dir / "plugins", node.plugins)
    node.start()

    node.until("good", lambda status: status.success is True)
    refused = node.until("/", lambda status: bool(status.message))
    assert str(log_dir / "plugins") in refused.message
    assert f"belongs to user {NOBODY}" in refused.message
    assert node.runner is not None
    assert node.runner.refused_plugins() == (refused.message,)
    assert not (shared / "ran").exists()


def test_a_file_of_theirs_in_a_folder_of_ours_is_refused_and_ours_beside_it_runs(
    tmp_path: Path,
) -> None:
    folder = tmp_path / "plugins"
    install_plugin(folder, "good.py", PLUGIN.encode())
    theirs = folder / "evil.py"
    theirs.write_text(PLUGIN)
    os.chown(theirs, NOBODY, NOBODY)
    good, evil = sorted(
        PluginFolders([folder], tmp_path / "copies").scan(), key=lambda plugin: bool(plugin.problem)
    )
    assert [source.name for source in good.sources] == ["good"]
    assert evil.sources == ()
    assert evil.problem.startswith(f"{theirs}: belongs to user {NOBODY}")


def test_a_link_of_theirs_to_a_plugin_of_ours_is_refused(shared: Path, tmp_path: Path) -> None:
    ours = install_plugin(tmp_path, "good.py", PLUGIN.encode())
    as_nobody(os.symlink, ours, shared / "link.py")
    assert "link.py: belongs to user" in read_plugin(shared / "link.py", to_run_here=False).problem


@pytest.mark.parametrize("package", [False, True])
def test_a_module_of_theirs_beside_a_plugin_is_not_imported(
    package: bool, shared: Path, node: CollectingNode
) -> None:
    code = f"import helper{'.inner' if package else ''}\n" + GOOD.replace("\n    ", "\n")
    node.write("good.py", code)
    helper = node.plugins / ("helper/inner.py" if package else "helper.py")
    helper.parent.mkdir(exist_ok=True)
    if package:
        helper.with_name("__init__.py").write_text("")
    helper.write_text(f"open({str(shared / 'ran')!r}, 'w')\n")
    os.chown(helper, NOBODY, NOBODY)
    node.start()

    failed = node.until("good", lambda status: status.success is False)
    assert f"{helper}: belongs to user {NOBODY}" in failed.message
    assert not (shared / "ran").exists()

    os.chown(helper, os.getuid(), os.getgid())
    node.write("good.py", f"{code}\n# again")
    node.until("good", lambda status: status.success is True)
    assert (shared / "ran").exists()


def test_byte_code_of_theirs_is_not_read(shared: Path, node: CollectingNode) -> None:
    node.write("good.py", "import helper\n" + GOOD.replace("\n    ", "\n"))
    helper = node.plugins / "helper.py"
    helper.write_text(f"open({str(shared / 'ours')!r}, 'w')\n")
    evil = shared / "helper.py"
    evil.write_text(f"open({str(shared / 'ran')!r}, 'w')\n")
    cache = node.plugins / "__pycache__" / f"helper.{sys.implementation.cache_tag}.pyc"
    cache.parent.mkdir()
    py_compile.compile(
        str(evil), str(cache), invalidation_mode=py_compile.PycInvalidationMode.UNCHECKED_HASH
    )
    os.chown(cache, NOBODY, NOBODY)
    node.start()
    node.until("good", lambda status: status.success is True)
    assert (shared / "ours").exists()
    assert not (shared / "ran").exists()


def test_nothing_is_installed_into_a_folder_of_theirs(shared: Path) -> None:
    as_nobody(os.mkdir, shared / "plugins")
    with pytest.raises(InputError, match=f"belongs to user {NOBODY}"):
        install_plugin(shared / "plugins", "good.py", PLUGIN.encode())
    made = install_plugin(shared / "ours" / "plugins", "good.py", PLUGIN.encode())
    assert made.parent.stat().st_mode & 0o777 == 0o700


def test_a_module_in_the_current_folder_is_not_imported_by_our_helpers(
    shared: Path, tmp_path: Path
) -> None:
    for name in ("msgspec", "ray_sentinel", "runpy", "json"):
        as_nobody(put, shared / f"{name}.py", f"open({str(shared / 'ran')!r}, 'w')\n")
    done = subprocess.run(
        process.python_module("ray_sentinel", "--version"),
        cwd=shared,
        capture_output=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert not (shared / "ran").exists()


def test_a_configuration_of_theirs_is_refused(shared: Path) -> None:
    file = shared / "sentinel.toml"
    as_nobody(put, file, '[notify]\ncommand = "touch /tmp/never"\n')
    with pytest.raises(ConfigError, match=f"{file}: belongs to user {NOBODY}"):
        config.load(file, environ={})
    with pytest.raises(ConfigError, match=f"{file}: belongs to user {NOBODY}"):
        config.load(environ={"RAY_SENTINEL_CONFIG": str(file)})


def test_a_configuration_cannot_say_whom_to_trust(tmp_path: Path) -> None:
    file = tmp_path / "sentinel.toml"
    file.write_text("trusted_uids = [65534]\n")
    with pytest.raises(ConfigError, match="unknown key trusted_uids"):
        config.load(file, environ={TRUSTED_UIDS_VARIABLE: "1"})


def test_a_check_and_a_catalogue_of_theirs_are_refused(shared: Path) -> None:
    as_nobody(put, shared / "check.py", "raise SystemExit")
    as_nobody(put, shared / "own.toml", "")
    with pytest.raises(InputError, match=r"check\.py: belongs to user"):
        read_source(shared / "check.py")
    with pytest.raises(ConfigError, match=r"own\.toml: belongs to user"):
        load_catalogue([shared / "own.toml"])


def test_logs_with_a_catalogue_of_theirs_beside_them_are_read_without_it(shared: Path) -> None:
    logs = shared / "logs"
    as_nobody(put, logs / "train.log", "step 1 loss 2.0\nTraceback (most recent call last):\nX\n")
    as_nobody(put, logs / "catalogue.toml", "this is no TOML, and would be an error")
    environ = {**os.environ, "HOME": str(shared), "RAY_SENTINEL_LOG_DIR": str(shared / "none")}
    done = subprocess.run(
        process.python_module("ray_sentinel", "triage", str(logs), "--json"),
        env=environ,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode in (0, 1), done.stderr
    assert json.loads(done.stdout)["class"]
    assert "catalogue.toml is not used" in done.stderr or "belongs to user" in done.stderr


def test_rules_of_theirs_are_not_given_to_prometheus(tmp_path: Path) -> None:
    files = JobFiles(tmp_path)
    rules = UserRules(files)
    assert rules.used
    own = tmp_path / "rules" / "own.yml"
    own.parent.mkdir()
    own.write_text("groups: []")
    assert rules.changed()
    assert rules.used
    os.chown(own, NOBODY, NOBODY)
    assert rules.changed()
    assert not rules.used
    assert "own.yml: belongs to user" in rules.untrusted
    os.chown(own, os.getuid(), os.getgid())
    assert rules.changed()
    assert rules.used


def test_the_agents_own_folder_and_the_lock_of_deployments_are_not_theirs(
    shared: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(shared))
    root = shared / f"ray_sentinel-{os.getuid()}"
    as_nobody(os.mkdir, root)
    as_nobody(put, root / "deploy-auto.lock", f"{os.getpid()} 1")
    made = run_folder(Node(id="n" * 20, host="h", address="10.0.0.1"))
    assert not made.is_relative_to(root)
    with NodeLock("") as lock:
        assert not lock.done()


def test_the_command_says_which_plugins_are_refused(shared: Path) -> None:
    as_nobody(put, shared / "plugins" / "evil.py", PLUGIN)
    listed = ray_sentinel("plugins", "list", "--no-run", "--json", RAY_SENTINEL_LOG_DIR=str(shared))
    assert listed.returncode == 1
    rows = {row["name"]: row for row in json.loads(listed.stdout)}
    assert rows["host"]["state"] == "known"
    assert f"belongs to user {NOBODY}" in rows["plugins"]["message"]
    checked = ray_sentinel("plugins", "check", str(shared / "plugins" / "evil.py"), "--json")
    assert checked.returncode == 1
    assert f"belongs to user {NOBODY}" in json.loads(checked.stdout)[0]["message"]


def test_a_user_who_is_named_is_trusted(shared: Path) -> None:
    as_nobody(put, shared / "plugins" / "good.py", PLUGIN)
    named = {"RAY_SENTINEL_LOG_DIR": str(shared), TRUSTED_UIDS_VARIABLE: str(NOBODY)}
    listed = ray_sentinel("plugins", "list", "--no-run", "--json", **named)
    assert listed.returncode == 0, listed.stdout
    assert "good" in {row["name"] for row in json.loads(listed.stdout)}


def ray_sentinel(*words: str, **environ: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        process.python_module("ray_sentinel", *words),
        env={**os.environ, **environ},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
