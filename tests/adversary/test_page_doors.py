"""What another user of a node can do at the coordinator's page: ask ``/healthz``, and no more."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import shutil
import signal
import socket
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from ray_sentinel import supervised_run, watched_page
from ray_sentinel.cli.main import main
from ray_sentinel.config import Config, CoordinatorConfig
from ray_sentinel.errors import UnreachableError
from ray_sentinel.http import page_client, page_file
from ray_sentinel.http.access import PageCredential, SignedRequest, link_of, new_secret, token_of
from ray_sentinel.http.address import listen
from ray_sentinel.http.page_client import PageClient, UnprovenError
from ray_sentinel.http.page_file import PageEntry, PageFile, network, pages
from ray_sentinel.supervise.actions import RunResult
from ray_sentinel.watched_page import WatchedPage
from ray_sentinel.web.page import Owner, Page
from ray_sentinel.web.routes import PageSource
from tests.support.coordinator_page import a_job
from tests.support.other_user import as_nobody, nobody_runs
from tests.support.page_data import incident, status
from tests.support.waiting import eventually

pytestmark = pytest.mark.integration

PATHS = ("/", "/page.js", "/page.css", "/api/v1/live", "/api/v1/status", "/api/v1/ranks",
         "/api/v1/incidents", "/api/v1/incidents/0001", "/api/v1/history", "/incidents/0001",
         "/nowhere")  # fmt: skip
JOB = "doors"


@pytest.fixture(autouse=True)
def folder(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The one in which pages' files lie: other tests' coordinators have theirs elsewhere."""
    made = Path(tempfile.mkdtemp(prefix="page-doors-"))
    monkeypatch.setattr(page_file, "folders", lambda: [made / "ours"])
    made.chmod(0o755)
    yield made / "ours"
    shutil.rmtree(made)


def at(url: str) -> tuple[str, int]:
    host, _, port = url.removeprefix("http://").rstrip("/").partition(":")
    return host, int(port)


def ask(url: str, path: str, **headers: str) -> tuple[int, bytes]:
    """(Status, body), asked without any proof."""
    connection = http.client.HTTPConnection(*at(url), timeout=20)
    with contextlib.closing(connection):
        connection.request("GET", path, headers=headers)
        answer = connection.getresponse()
        return answer.status, answer.read()


Serve = Callable[..., Page]


@pytest.fixture
def serve() -> Iterator[Serve]:
    """A real page, of a coordinator that knows of no incident unless told."""
    served: list[Page] = []

    def start(port: int = 0, *, incidents: tuple[Any, ...] = (), secret: bytes = b"") -> Page:
        owner = Owner(deployment=f"d{len(served)}", secret=secret or new_secret(), job=JOB)
        source = PageSource(status, lambda: incidents, lambda: b"the history")
        served.append(Page(source, port, owner))
        return served[-1]

    yield start
    for page in served:
        page.close()


def forged() -> list[dict[str, Any]]:
    """A hang of the job, and a node that is bad."""
    base = {"job": JOB, "severity": "critical", "state": "explained", "rule": "x", "attempt": 0,
            "suspected_at": time.time() + 600, "confirmed_at": time.time(),
            "bundle": "/x"}  # fmt: skip
    culprits = [{"rank": 1, "host": "n7", "pid": 7, "reason": "its node is lost"}]
    verdict = {"kind": "node-lost", "summary": "", "culprits": culprits}
    return [
        {**base, "id": "1", "kind": "gil-held", "summary": "forged"},
        {**base, "id": "2", "kind": "node-lost", "summary": "forged", "verdict": verdict},
    ]


def forge(listening: socket.socket) -> None:
    """Answer everything with what would end a run, and with whatever proof may come to mind."""
    ranks = [a_job(JOB)]
    while True:
        connection, _ = listening.accept()
        with connection:
            asked = connection.recv(65536).decode()
            body = json.dumps(ranks if "/ranks" in asked else forged()).encode()
            sign = asked.partition("RaySentinel ")[2].partition("\r\n")[0].rpartition(".")[2]
            proof = f"Ray-Sentinel-Proof: {int(time.time() * 1000)}.{sign}\r\n" if sign else ""
            head = f"HTTP/1.1 200 OK\r\nContent-Length: {len(body)}\r\n{proof}\r\n"
            with contextlib.suppress(OSError):
                connection.sendall(head.encode() + body)


def forward(listening: socket.socket, port: int, seen: socket.socket | None = None) -> None:
    """Pass connections on to a port of loopback; what clients say is shown to ``seen``."""

    def pump(source: socket.socket, sink: socket.socket, show: bool) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(65536):
                if show and seen is not None:
                    seen.sendall(data)
                sink.sendall(data)
            sink.shutdown(socket.SHUT_WR)

    while True:
        try:
            client, _ = listening.accept()
        except OSError:
            return
        server = socket.create_connection(("127.0.0.1", port))
        for source, sink, show in ((client, server, True), (server, client, False)):
            threading.Thread(target=pump, args=(source, sink, show), daemon=True).start()


@pytest.fixture
def tunnel() -> Iterator[Callable[[Page], int]]:
    """The port of a plain forwarder that leads to a page, as ``ssh -L`` makes one."""
    opened: list[socket.socket] = []

    def dig(page: Page) -> int:
        opened.append(listen("127.0.0.1", 0))
        threading.Thread(target=forward, args=(opened[-1], at(page.url)[1]), daemon=True).start()
        return int(opened[-1].getsockname()[1])

    yield dig
    for one in opened:
        # Wakes the thread that accepts, which a close alone does not.
        with contextlib.suppress(OSError):
            one.shutdown(socket.SHUT_RDWR)
        one.close()


def supervised(port: int, log: Path, page: str | None, said: list[str]) -> RunResult:
    """A run that ends well by itself after some looks at the page."""
    return supervised_run.run(
        ["sleep", "5"],
        job=JOB,
        config=Config(coordinator=CoordinatorConfig(port=port), log_dir=str(log)),
        page=page,
        say=said.append,
        max_retries=0,
        grace=1.0,
    )


@pytest.mark.parametrize("named", [False, True])
def test_a_forged_incident_ends_no_run(serve: Serve, tmp_path: Path, named: bool) -> None:
    """The impostor was first on the configured port, and the page is on the next."""
    with listen("127.0.0.1", 0) as taken, nobody_runs(forge, taken):
        port = taken.getsockname()[1]
        assert ask(f"http://127.0.0.1:{port}", "/api/v1/incidents")[0] == 200
        page = serve(port)
        assert at(page.url)[1] != port
        said: list[str] = []
        # The real page's link, on the impostor's port: as somebody would who kept it.
        link = link_of(f"http://127.0.0.1:{port}", new_secret()) if named else None
        result = supervised(port, tmp_path, link, said)
    assert result.success, result.reason
    assert result.bad_nodes == ()
    unproven = [text for text in said if "nothing of it is believed" in text]
    assert len(unproven) == (1 if named else 0), said
    assert not any("forged" in text for text in said)


def test_the_real_page_beside_an_impostor_is_heard(serve: Serve) -> None:
    with listen("127.0.0.1", 0) as taken, nobody_runs(forge, taken):
        page = serve(taken.getsockname()[1], incidents=(incident(),))
        watched = WatchedPage(port=taken.getsockname()[1])
        (heard,) = watched.get_json("/api/v1/incidents")
        assert heard["summary"].startswith("rank 3")
        assert page.notes[0].startswith("port ")


@pytest.mark.parametrize("credential", ["secret", "token"])
def test_who_cannot_prove_it_is_not_believed_and_learns_nothing(credential: str) -> None:
    secret = new_secret()
    with listen("127.0.0.1", 0) as taken, nobody_runs(forge, taken):
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        known = {
            "secret": PageCredential.of_secret(secret, address),
            "token": PageCredential.of_token(token_of(secret), "a test"),
        }[credential]
        with pytest.raises(UnprovenError, match="nothing of it is believed"):
            PageClient(f"http://{address}", known).get("/api/v1/status", seconds=10)
    signed = SignedRequest(known, "/", time.time()).authorization
    assert token_of(secret) not in signed


def test_a_relay_on_another_port_gets_nothing_from_the_page(serve: Serve) -> None:
    page = serve()
    secret = pages()[0][0].secret
    ours, theirs = socket.socketpair()
    with ours, theirs, listen("127.0.0.1", 0) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        with nobody_runs(forward, taken, at(page.url)[1], theirs):
            client = PageClient(f"http://{address}", PageCredential.of_secret(secret, address))
            with pytest.raises(UnprovenError):
                client.get("/api/v1/incidents", seconds=10)
        ours.settimeout(10)
        overheard = ours.recv(65536)
    signed = overheard.decode().partition("Authorization: ")[2].partition("\r\n")[0]
    assert as_nobody(ask, page.url, "/api/v1/incidents", Authorization=signed)[0] == 401


def test_a_request_that_was_overheard_is_answered_once(serve: Serve) -> None:
    page = serve(incidents=(incident(),))
    entry = pages()[0][0]
    signed = SignedRequest(entry.credential(), "/api/v1/incidents", time.time()).authorization
    assert ask(page.url, "/api/v1/incidents", Authorization=signed)[0] == 200
    for path in ("/api/v1/incidents", "/api/v1/status"):
        assert as_nobody(ask, page.url, path, Authorization=signed)[0] == 401


def test_nobody_reads_anything_but_healthz(serve: Serve) -> None:
    page = serve(incidents=(incident(),))
    for path in PATHS:
        code, body = as_nobody(ask, page.url, path)
        assert code == 401, path
        assert b"rank 3" not in body
        assert b"ray-sentinel status" in body
    assert as_nobody(ask, page.url, "/healthz") == (200, b"ok\n")
    bearer = f"Bearer {page.link.partition('=')[2]}"
    assert ask(page.url, "/api/v1/incidents/0001", Authorization=bearer)[0] == 200


def test_nobody_reads_the_secret(serve: Serve, folder: Path) -> None:
    serve()
    (path,) = folder.iterdir()
    assert folder.stat().st_mode & 0o777 == 0o700
    assert path.stat().st_mode & 0o777 == 0o600
    for look in (path.read_bytes, folder.iterdir().__next__):
        with pytest.raises(PermissionError):
            as_nobody(look)


def entry_of(url: str) -> PageEntry:
    return PageEntry(url=url, secret=new_secret(), deployment="planted", job=JOB, network=network())


def plant(folder: Path, entry: PageEntry) -> None:
    """Hold a page's file there, as a coordinator would."""
    folder.parent.chmod(0o1777) if os.geteuid() == 0 else None
    assert PageFile(entry, [folder]).path is not None
    signal.pause()


def test_a_folder_that_another_user_made_first_is_refused_by_name(
    serve: Serve, folder: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    open_to_all = folder.parent / "tmp"
    open_to_all.mkdir()
    open_to_all.chmod(0o1777)
    planted = open_to_all / "ray_sentinel-0"
    monkeypatch.setattr(page_file, "folders", lambda: [planted, folder])
    with listen("127.0.0.1", 0) as taken, nobody_runs(forge, taken):
        url = f"http://127.0.0.1:{taken.getsockname()[1]}/"
        with nobody_runs(plant, planted, entry_of(url)):
            eventually(lambda: list(planted.glob("page-*")), "the planted file", 20)
            page = serve()
            assert f"{planted} belongs to user 65534" in page.notes[0]
            said: list[str] = []
            result = supervised(taken.getsockname()[1], tmp_path, None, said)
            assert result.success, result.reason
            assert [text for text in said if f"{planted} belongs to user 65534" in text]
            assert [entry.url for entry in pages()[0]] == [page.url]


def test_a_file_of_another_user_a_link_or_a_fifo_in_its_place(serve: Serve, folder: Path) -> None:
    page = serve()
    (ours,) = folder.iterdir()
    elsewhere = folder.parent / "elsewhere"
    shutil.copy(ours, elsewhere)
    (folder / "page-link.json").symlink_to(elsewhere)
    os.mkfifo(folder / "page-fifo.json")
    shutil.copy(ours, folder / "page-theirs.json")
    os.chown(folder / "page-theirs.json", 65534, 65534)
    shutil.copy(ours, folder / "page-open.json")
    (folder / "page-open.json").chmod(0o644)
    found, problems = pages()
    assert [entry.url for entry in found] == [page.url]
    told = "\n".join(problems)
    for name, why in (
        ("link", "is a link"),
        ("fifo", "is no file"),
        ("theirs", "belongs to user 65534"),
        ("open", "can be read or written by others"),
    ):
        assert f"{folder}/page-{name}.json {why}: it is not used" in told


def test_a_link_in_the_folder_s_place(serve: Serve, folder: Path) -> None:
    elsewhere = folder.parent / "elsewhere"
    elsewhere.mkdir(mode=0o700)
    folder.symlink_to(elsewhere)
    page = serve()
    assert f"{folder} is no folder" in page.notes[0]
    assert "--page" in page.notes[1]
    assert list(elsewhere.iterdir()) == []
    assert pages()[0] == []


def test_what_a_killed_coordinator_left_behind_is_no_page(folder: Path) -> None:
    def hold() -> None:
        PageFile(entry_of("http://127.0.0.1:9/"))
        signal.pause()

    pid = os.fork()
    if not pid:
        try:
            hold()
        finally:
            os._exit(1)
    try:
        eventually(lambda: pages()[0], "its file", 20)
    finally:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
    assert pages() == ([], [])
    assert len(list(folder.iterdir())) == 1
    other = PageFile(msgspec.structs.replace(entry_of("http://127.0.0.1:9/"), deployment="next"))
    assert [path.name for path in folder.iterdir()] == ["page-next.json"]
    (folder / "page-next.json").unlink()
    other.restore()
    assert len(pages()[0]) == 1
    other.close()
    assert list(folder.iterdir()) == []


def test_a_restarted_coordinator_keeps_link_and_clients(serve: Serve, folder: Path) -> None:
    secret = new_secret()
    first = serve(secret=secret)
    watched, link = WatchedPage(), first.link
    by_link = WatchedPage(link)
    old = SignedRequest(pages()[0][0].credential(), "/api/v1/ranks", time.time()).authorization
    for one in (watched, by_link):
        assert one.get_json("/api/v1/ranks")
    port = at(first.url)[1]
    first.close()
    for one in (watched, by_link):
        with pytest.raises(UnreachableError):
            one.get_json("/api/v1/ranks")
    again = serve(port, secret=secret)
    assert again.link == link
    for one in (watched, by_link):
        assert one.get_json("/api/v1/ranks")
    assert ask(again.url, "/api/v1/ranks", Authorization=old)[0] == 401, "of its earlier life"


def test_several_pages_of_one_user(serve: Serve) -> None:
    first, second = serve(), serve()
    port = at(first.url)[1]
    assert WatchedPage(first.url).get_json("/api/v1/ranks")
    said: list[str] = []
    WatchedPage(port=port, say=said.append).get_json("/api/v1/ranks")
    assert said == []
    WatchedPage(say=said.append).get_json("/api/v1/ranks")
    assert first.url in said[0]
    assert second.url in said[0]


@pytest.mark.parametrize("how", ["link", "variable", "file", "option"])
@pytest.mark.parametrize("command", ["status", "incidents"])
def test_through_a_tunnel_with_the_token(
    serve: Serve,
    tunnel: Callable[[Page], int],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    how: str,
    command: str,
) -> None:
    page = serve(incidents=(incident(),))
    url, token = f"http://localhost:{tunnel(page)}", page.link.partition("=")[2]
    held = tmp_path / "token"
    held.write_text(page.link if how == "option" else f"{token}\n")
    options = ["--url", f"{url}/?token={token}" if how == "link" else url, "--json"]
    if how == "variable":
        monkeypatch.setenv("RAY_SENTINEL_TOKEN", token)
    elif how == "file":
        monkeypatch.setenv("RAY_SENTINEL_TOKEN_FILE", str(held))
    elif how == "option":
        options += ["--token-file", str(held)]
    assert main([command, *options]) == 1
    assert "rank 3" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("token", "says"),
    [("", "ray-sentinel status --link"), ("x" * 43, "does not know the token"), ("no", "no token")],
)
def test_through_a_tunnel_without_it(
    serve: Serve,
    tunnel: Callable[[Page], int],
    capsys: pytest.CaptureFixture[str],
    token: str,
    says: str,
) -> None:
    url = f"http://localhost:{tunnel(serve(incidents=(incident(),)))}"
    code = main(["status", "--url", f"{url}/?token={token}" if token else url])
    told = capsys.readouterr()
    assert code == (2 if token == "no" else 3)
    assert says in told.err
    assert "rank 3" not in told.out
    # A source of series is asked too whether it is a page.
    assert main(["diagnose", f"{url}/?token={token}" if token else url]) == code
    assert says in capsys.readouterr().err


def test_clocks_that_differ(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    page = serve()
    wrong = type("Clock", (), {"time": lambda: time.time() - 7200, "monotonic": time.monotonic})
    monkeypatch.setattr(page_client, "time", wrong)
    assert page_client.page_client(page.link).get("/api/v1/ranks", seconds=10)
    assert page_client.page_client(page.url).get("/api/v1/ranks", seconds=10)


def drip(listening: socket.socket) -> None:
    """An answer that never ends, a byte at a time."""
    while True:
        connection, _ = listening.accept()
        with contextlib.suppress(OSError), connection:
            connection.sendall(b"HTTP/1.1 200 OK\r\n")
            while True:
                connection.sendall(b"X")
                time.sleep(0.05)


def test_an_answer_that_trickles_in_holds_nobody_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watched_page, "PAGE_SECONDS", 0.5)
    with listen("127.0.0.1", 0) as taken, nobody_runs(drip, taken):
        link = link_of(f"http://127.0.0.1:{taken.getsockname()[1]}", new_secret())
        begun = time.monotonic()
        with pytest.raises(UnreachableError, match="timed out"):
            WatchedPage(link).get_json("/api/v1/incidents")
    assert time.monotonic() - begun < 5.0


def send_on(listening: socket.socket, port: int) -> None:
    """Send whoever asks to another port."""
    while True:
        connection, _ = listening.accept()
        with contextlib.suppress(OSError), connection:
            connection.recv(65536)
            to = f"Location: http://127.0.0.1:{port}/api/v1/ranks\r\nContent-Length: 0\r\n\r\n"
            connection.sendall(b"HTTP/1.1 302 Found\r\n" + to.encode())


def test_nobody_is_sent_on(serve: Serve) -> None:
    page = serve()
    with listen("127.0.0.1", 0) as taken, nobody_runs(send_on, taken, at(page.url)[1]):
        link = link_of(f"http://127.0.0.1:{taken.getsockname()[1]}", pages()[0][0].secret)
        with pytest.raises(UnprovenError):
            WatchedPage(link).get_json("/api/v1/ranks")
