"""What a program says of itself, and what is made of it."""

from __future__ import annotations

from pathlib import Path

import pytest

from ray_sentinel.errors import MissingPartError
from ray_sentinel.store.prometheus.binary import find_prometheus, probe


def script(folder: Path, text: str) -> str:
    path = folder / "prometheus"
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return str(path)


def test_version_and_flags(tmp_path: Path) -> None:
    program = probe(
        script(
            tmp_path,
            'case "$1" in --version) echo "prometheus, version 2.53.4 (branch: x)";;\n'
            '*) echo "      --[no-]web.enable-lifecycle"; echo "      --log.level=info" >&2;; esac',
        )
    )
    assert program.version == (2, 53, 4)
    assert program.version_text == "2.53.4"
    assert program.takes_old_samples
    assert program.flags == {"web.enable-lifecycle", "log.level"}


def test_an_old_one(tmp_path: Path) -> None:
    program = probe(script(tmp_path, 'echo "prometheus, version 2.38.0+ds (x)" >&2'))
    assert not program.takes_old_samples


@pytest.mark.parametrize(
    "text", ["echo hello", "exit 3", "echo promtool, version 2.42.0", "kill -9 $$"]
)
def test_what_is_no_prometheus(text: str, tmp_path: Path) -> None:
    path = script(tmp_path, text)
    with pytest.raises(MissingPartError, match="is not Prometheus"):
        probe(path)


def test_what_cannot_be_run_at_all(tmp_path: Path) -> None:
    path = tmp_path / "prometheus"
    path.write_bytes(b"\x7fELF\x00\x00")
    path.chmod(0o755)
    with pytest.raises(MissingPartError, match="is not Prometheus"):
        probe(str(path))


def test_where_it_is_looked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = script(tmp_path, "true")
    assert find_prometheus(str(tmp_path)) == path
    assert find_prometheus(path) == path
    monkeypatch.setenv("PATH", str(tmp_path))
    assert find_prometheus() == path
    monkeypatch.setenv("PATH", "")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    with pytest.raises(MissingPartError, match="ray-sentinel prometheus download"):
        find_prometheus()
