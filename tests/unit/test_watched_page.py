"""Which page a run asks, and what it takes to ask one."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from ray_sentinel.errors import UsageError
from ray_sentinel.http import page_client, page_file
from ray_sentinel.http.page_client import NoTokenError, split_link, token_in, without_token
from ray_sentinel.http.page_file import PageEntry
from ray_sentinel.watched_page import WatchedPage, best

TOKEN = "x" * 43


def entry(port: int, cluster: str = "", wanted: int = 0) -> PageEntry:
    return PageEntry(
        url=f"http://127.0.0.1:{port}/",
        secret=b"s" * 32,
        deployment=str(port),
        cluster=cluster,
        wanted_port=wanted,
    )


def test_the_named_cluster_s_page_then_the_configured_port_s() -> None:
    entries = [entry(1, "a:1"), entry(2, "b:1"), entry(3, "b:1", wanted=9401), entry(9401, "c:1")]

    def ports(cluster: str, port: int) -> list[str]:
        return [one.deployment for one in best(entries, cluster, port)]

    assert ports("a:1", 9401) == ["1"]
    assert ports("b:1", 9401) == ["3"]
    assert ports("b:1", 0) == ["2", "3"]
    assert ports("", 9401) == ["3", "9401"]
    assert ports("unknown:1", 2) == ["2"]
    assert ports("a:7", 9401) == []
    assert ports("auto", 9401) == ports("ray://a:10001", 9401) == ["3", "9401"]
    assert ports("", 7) == ["1", "2", "3", "9401"]


@pytest.mark.parametrize(
    ("link", "root", "token"),
    [
        (f"http://h:1/?token={TOKEN}", "http://h:1", TOKEN),
        (f"http://h:1?token={TOKEN}", "http://h:1", TOKEN),
        (f"https://h/a/b/?x=1&token={TOKEN}#f", "https://h/a/b", TOKEN),
        ("http://h:1/", "http://h:1", ""),
        ("http://[::1]:1/?token=", "http://[::1]:1", ""),
    ],
)
def test_a_link_and_its_token(link: str, root: str, token: str) -> None:
    assert split_link(link) == (root, token)
    assert TOKEN not in without_token(link)


def test_what_is_no_link_is_refused_without_its_token(tmp_path: Path) -> None:
    for link in (f"ftp://h?token={TOKEN}", f"?token={TOKEN}", f"http://?token={TOKEN}"):
        with pytest.raises(UsageError, match="no address of a page") as refused:
            split_link(link)
        assert TOKEN not in str(refused.value)
    with pytest.raises(UsageError, match="no token of a page"):
        WatchedPage("http://h/?token=short")
    with pytest.raises(UsageError, match="cannot be read"):
        token_in(tmp_path / "none")


def test_who_has_neither_token_nor_file_is_told_once_how_to_get_in(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(page_file, "folders", list)
    said: list[str] = []
    watched = WatchedPage("http://127.0.0.1:9", environ={}, say=said.append)
    for _ in range(3):
        with pytest.raises(NoTokenError):
            watched.get_json("/api/v1/ranks")
    (text,) = said
    assert page_client.HOW_TO_GET_IN in text


def test_the_client_of_a_tunnel_needs_no_unix() -> None:
    script = (
        "import sys; sys.modules['fcntl'] = None\n"
        "from ray_sentinel.cli.remote import RemoteCoordinator\n"
        f"RemoteCoordinator('http://h:1/?token={TOKEN}')\n"
        "try: RemoteCoordinator('http://h:1')\n"
        "except Exception as error: print(type(error).__name__)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stdout == "NoTokenError\n"
