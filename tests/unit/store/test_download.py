"""Getting Prometheus: what is not the pinned release is refused, and nothing is installed."""

from __future__ import annotations

import hashlib
import http.server
import io
import tarfile
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from ray_sentinel.cli.main import main
from ray_sentinel.errors import InputError, MissingPartError, UnreachableError
from ray_sentinel.store.prometheus.download import PINNED, PROGRAMS, Release, download


def archive(root: str, names: tuple[str, ...] = PROGRAMS) -> bytes:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as file:
        for name in names:
            data = f"#!/bin/sh\necho {name}\n".encode()
            member = tarfile.TarInfo(f"{root}/{name}")
            member.size = len(data)
            file.addfile(member, io.BytesIO(data))
    return packed.getvalue()


GOOD = archive("prometheus-9.9.9.linux-amd64")


class Site:
    """Serves one archive, and counts how often it is asked."""

    def __init__(self) -> None:
        self.body, self.asked = GOOD, [""]
        site = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                site.asked.append(self.path)
                found = self.path.endswith("/v9.9.9/prometheus-9.9.9.linux-amd64.tar.gz")
                self.send_response(200 if found else 404)
                self.send_header("Content-Length", str(len(site.body)))
                self.end_headers()
                self.wfile.write(site.body)

            def log_message(self, *_: object) -> None:
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def release(self, body: bytes = GOOD, version: str = "9.9.9") -> Release:
        base = f"http://127.0.0.1:{self.server.server_port}/download"
        return Release(version, {"amd64": hashlib.sha256(body).hexdigest()}, base)


@pytest.fixture
def site() -> Iterator[Site]:
    serving = Site()
    yield serving
    serving.server.shutdown()
    serving.server.server_close()


def test_programs_are_installed_to_be_run(site: Site, tmp_path: Path) -> None:
    written = download(tmp_path / "bin", release=site.release(), machine="x86_64")
    assert [path.name for path in written] == ["prometheus", "promtool"]
    for path in written:
        assert path.stat().st_mode & 0o777 == 0o755
        assert path.read_text().endswith(f"{path.name}\n")
    assert sorted(path.name for path in (tmp_path / "bin").iterdir()) == sorted(PROGRAMS)


def test_another_checksum_installs_nothing(site: Site, tmp_path: Path) -> None:
    site.body = archive("prometheus-9.9.9.linux-amd64", ("prometheus",))
    with pytest.raises(InputError, match=r"SHA-256 .* nothing was installed"):
        download(tmp_path / "bin", release=site.release(), machine="x86_64")
    assert not list((tmp_path / "bin").iterdir())


def test_an_archive_without_the_programs_is_said(site: Site, tmp_path: Path) -> None:
    site.body = archive("elsewhere")
    with pytest.raises(InputError, match="has not what it should have"):
        download(tmp_path / "bin", release=site.release(site.body), machine="x86_64")
    site.body = b"no archive at all"
    with pytest.raises(InputError, match="has not what it should have"):
        download(tmp_path / "bin", release=site.release(site.body), machine="x86_64")


def test_without_network_it_is_said_what_to_do(tmp_path: Path) -> None:
    # Nobody listens on port 1 of this machine.
    release = Release("9.9.9", {"amd64": "0" * 64}, "http://127.0.0.1:1/download")
    with pytest.raises(UnreachableError, match="--archive FILE"):
        download(tmp_path, release=release, machine="x86_64")


def test_a_release_that_is_not_there(site: Site, tmp_path: Path) -> None:
    with pytest.raises(UnreachableError, match="HTTP 404"):
        download(tmp_path, release=site.release(version="1.2.3"), machine="x86_64")


def test_an_archive_brought_here_is_checked_too(site: Site, tmp_path: Path) -> None:
    file = tmp_path / "file.tar.gz"
    file.write_bytes(GOOD)
    assert download(tmp_path / "bin", release=site.release(), machine="amd64", archive=file)
    file.write_bytes(GOOD + b"x")
    with pytest.raises(InputError, match="nothing was installed"):
        download(tmp_path / "bin2", release=site.release(), machine="amd64", archive=file)
    with pytest.raises(InputError, match="cannot be read"):
        download(tmp_path, release=site.release(), machine="amd64", archive=tmp_path / "none")
    assert site.asked == [""], "nothing was downloaded"


def test_a_machine_without_a_release(tmp_path: Path) -> None:
    with pytest.raises(MissingPartError, match="riscv64"):
        download(tmp_path, machine="riscv64")


def test_the_pinned_release() -> None:
    assert {len(checksum) for checksum in PINNED.checksums.values()} == {64}
    assert PINNED.url("arm64").startswith("https://github.com/prometheus/prometheus/releases/")
    assert PINNED.url("arm64").endswith("/v2.53.4/prometheus-2.53.4.linux-arm64.tar.gz")


def test_the_command_refuses_what_is_not_the_release(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "file.tar.gz"
    file.write_bytes(GOOD)
    to = str(tmp_path / "bin")
    assert main(["prometheus", "download", "--archive", str(file), "--to", to, "--json"]) in (2, 3)
    assert "error" in capsys.readouterr().out
    assert not list((tmp_path / "bin").glob("*"))
