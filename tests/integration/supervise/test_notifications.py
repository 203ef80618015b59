"""Webhooks and commands that work, fail, hang and come back."""

from __future__ import annotations

import importlib.util
import json
import socket
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from ray_sentinel.config import NotifyConfig
from ray_sentinel.errors import UsageError
from ray_sentinel.supervise.notify.notices import Notice
from ray_sentinel.supervise.notify.notifier import Notifier
from tests.support.parts import require_module
from tests.support.waiting import eventually

pytestmark = pytest.mark.integration

SECONDS = 30.0


class Hook:
    """A webhook that answers as told: one status after the other, the last one for ever."""

    def __init__(self) -> None:
        self.answers = [200]
        self.received: list[dict[str, Any]] = []
        hook = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                data = self.rfile.read(int(self.headers["Content-Length"]))
                hook.received.append(json.loads(data))
                answer = hook.answers.pop(0) if len(hook.answers) > 1 else hook.answers[0]
                self.send_response(answer)
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, format: str, *args: Any) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}/secret"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()


@pytest.fixture
def hook() -> Iterator[Hook]:
    made = Hook()
    yield made
    made.server.shutdown()
    made.server.server_close()


def notice(key: str = "1", event: str = "hang") -> Notice:
    return Notice(key=key, event=event, job="job", text="rank 3 sleeps", time=time.time())


def notifier(**settings: Any) -> Notifier:
    return Notifier(NotifyConfig(**settings), delays=(0.05, 0.05, 0.05))


def test_who_asked_learns_what_was_delivered(hook: Hook) -> None:
    hook.answers = [500, 200, 404]
    heard: list[str] = []
    sender = Notifier(
        NotifyConfig(webhook=hook.url),
        delays=(0.05,),
        sent=lambda told: heard.append(told.key),
    )
    sender.notify(notice("delivered"))
    sender.notify(notice("refused"))
    assert sender.close(SECONDS)
    assert heard == ["delivered"]


def test_each_key_is_told_once(hook: Hook) -> None:
    sender = notifier(webhook=hook.url)
    assert sender.notify(notice("1"))
    assert not sender.notify(notice("1"))
    sender.mark_sent(["2"])
    assert not sender.notify(notice("2"))
    assert sender.notify(notice("3"))
    assert sender.close(SECONDS)
    assert [told["key"] for told in hook.received] == ["1", "3"]
    assert not sender.notify(notice("4")), "closed"


def test_a_webhook_that_fails_is_tried_again_and_one_that_refuses_is_not(hook: Hook) -> None:
    hook.answers = [500, 503, 200]
    sender = notifier(webhook=hook.url)
    sender.notify(notice("1"))
    assert sender.close(SECONDS)
    assert (len(hook.received), sender.dropped, sender.problem) == (3, 0, "")
    hook.answers, hook.received = [404], []
    sender = notifier(webhook=hook.url)
    sender.notify(notice("1"))
    assert sender.close(SECONDS)
    assert (len(hook.received), sender.dropped) == (1, 1)
    assert "404" in sender.problem
    assert "secret" not in sender.problem


def test_only_the_events_that_are_wanted(hook: Hook) -> None:
    sender = notifier(webhook=hook.url, events="failed")
    assert not sender.notify(notice("1", "hang"))
    assert sender.notify(notice("2", "failed"))
    assert sender.close(SECONDS)


def test_a_webhook_that_hangs_is_in_nobody_s_way(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        sender = notifier(webhook=f"http://127.0.0.1:{server.getsockname()[1]}/")
        begun = time.monotonic()
        for number in range(1000):
            sender.notify(notice(str(number)))
        assert not sender.close(0.1)
        assert time.monotonic() - begun < 5.0
        assert sender.dropped >= 700, "what waits is bounded"


def test_apprise_sends_to_any_service_that_it_knows(hook: Hook) -> None:
    require_module("apprise")
    place = hook.url.removeprefix("http://")
    hook.answers = [500, 200]
    sender = notifier(apprise=f"json://{place}?cto=5&rto=5")
    sender.notify(notice())
    assert sender.close(SECONDS)
    assert (sender.dropped, sender.problem) == (0, "")
    told = hook.received[-1]
    assert (told["title"], told["message"], told["type"]) == (
        "job: hang", "rank 3 sleeps", "failure",
    )  # fmt: skip
    assert len(hook.received) == 2, "it was sent again after the first refusal"


def test_an_address_that_apprise_does_not_know_is_final_and_not_shown() -> None:
    require_module("apprise")
    sender = notifier(apprise="nobody://secret-token/here")
    sender.notify(notice())
    assert sender.close(SECONDS)
    assert sender.dropped == 1
    assert "nobody://..." in sender.problem
    assert "secret" not in sender.problem


def test_what_apprise_cannot_send_is_said_without_the_address(hook: Hook) -> None:
    require_module("apprise")
    hook.answers = [500]
    sender = Notifier(
        NotifyConfig(apprise=hook.url.replace("http://", "json://user:hunter2@")), delays=()
    )
    sender.notify(notice())
    eventually(lambda: sender.dropped == 1, "it is given up")
    assert "the service did not take it" in sender.problem
    assert not {"hunter2", "secret"} & set(sender.problem.replace("/", " ").split())


def test_apprise_that_is_not_installed_names_the_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(UsageError, match=r"pip install 'ray-sentinel\[notify\]'"):
        notifier(apprise="json://localhost")


def test_nobody_listens() -> None:
    sender = notifier(webhook="http://127.0.0.1:9/")
    sender.notify(notice())
    eventually(lambda: sender.dropped == 1, "it is given up")
    assert "refused" in sender.problem.lower()


def test_a_command_is_given_the_notice(tmp_path: Path) -> None:
    out = tmp_path / "out"
    script = tmp_path / "tell.sh"
    script.write_text(
        f'#!/bin/sh\n{{ echo "$SENTINEL_EVENT $1"; cat; }} > {out}.part\nmv {out}.part {out}\n'
    )
    script.chmod(0o755)
    sender = notifier(command=f"{script} 'two words'")
    sender.notify(notice())
    assert sender.close(SECONDS)
    first, data = out.read_text().split("\n", 1)
    assert first == "hang two words"
    assert json.loads(data)["text"] == "rank 3 sleeps"


def test_a_command_that_fails_or_is_missing(tmp_path: Path) -> None:
    sender = notifier(command="false")
    sender.notify(notice())
    eventually(lambda: sender.dropped == 1, "it is given up")
    assert "status 1" in sender.problem
    sender = notifier(command="/no/such/program")
    sender.notify(notice())
    eventually(lambda: sender.dropped == 1, "it is given up")


def test_a_redirect_is_no_receipt(hook: Hook) -> None:
    hook.answers = [302]
    notifier = Notifier(NotifyConfig(webhook=hook.url), delays=())
    assert notifier.notify(notice())
    assert notifier.close(SECONDS)
    assert (notifier.dropped, notifier.problem) == (1, "http://127.0.0.1/... answered 302")


def test_who_speaks_no_http_stops_nobody(hook: Hook) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:

        def answer() -> None:
            with other.accept()[0] as client:
                client.recv(1 << 16)
                client.sendall(b"\x15\x03\x01\x00\x02\x02\x46\r\n")

        thread = threading.Thread(target=answer, daemon=True)
        thread.start()
        odd = f"http://127.0.0.1:{other.getsockname()[1]}/"
        notifier = Notifier(NotifyConfig(webhook=f"{odd} {hook.url}"), delays=())
        assert notifier.notify(notice())
        thread.join(SECONDS)
        assert notifier.close(SECONDS)
    assert len(hook.received) == 1
    assert notifier.dropped == 1
