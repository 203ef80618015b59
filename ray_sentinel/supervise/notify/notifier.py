"""Sends notifications to webhooks, Apprise and a command: each once, with retries, without
blocking.

``Notifier.notify`` only queues. One thread sends; a receiver that hangs delays later notifications,
and nothing else. The queue is bounded: the oldest notification is dropped first.
"""

from __future__ import annotations

import importlib.util
import logging
import os
import shlex
import threading
import urllib.error
import urllib.request
from collections import OrderedDict, deque
from collections.abc import Callable, Iterable, Sequence
from http.client import HTTPException
from typing import cast, get_args

import msgspec

from ray_sentinel import process
from ray_sentinel import regex as re
from ray_sentinel.backoff import Backoff
from ray_sentinel.config import NotifyConfig
from ray_sentinel.errors import MissingPartError, UsageError
from ray_sentinel.http.client import NoRedirect, address
from ray_sentinel.masking import MASK, mask, mask_record
from ray_sentinel.supervise.notify.apprise_sender import NOT_SENT, UNKNOWN, AppriseNotice
from ray_sentinel.supervise.notify.notices import Notice, Style, body, variables

log = logging.getLogger(__name__)

SECONDS = 10.0
"""Seconds that one attempt at one receiver may take."""
APPRISE_SECONDS = 20.0
"""Seconds that one attempt by Apprise may take, including the start of its process."""
DELAYS = Backoff(first=1.0, most=120.0, factor=5.0).delays(4)
"""Seconds to wait between the attempts."""
PATIENCE_SECONDS = sum(DELAYS) + (len(DELAYS) + 1) * max(SECONDS, APPRISE_SECONDS)
"""Seconds after which a notice has been delivered or given up."""
MOST_WAITING = 200
"""Most notices that wait to be delivered; beyond that the oldest are dropped, and counted."""
MOST_KNOWN = 5000
"""Most keys that are remembered, so that nothing is sent twice; the oldest are forgotten."""
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://")
_FINAL = frozenset({301, 302, 303, 307, 308, 400, 401, 403, 404, 405, 410, 413})
"""HTTP statuses that another attempt would receive again, so that none is made."""


# A redirect is not followed: the notice would be left behind, and a page to log in at, say, taken
# for its receipt.
_OPENER = urllib.request.build_opener(NoRedirect)


def check(config: NotifyConfig) -> None:
    """Raises UsageError for settings that can never work."""
    if config.style not in get_args(Style):
        raise UsageError(f"notify.style: {config.style!r} is none of {', '.join(get_args(Style))}")
    for url in config.webhook.split():
        if address(url) is None:
            shown = mask("/".join(url.split("/")[:3]))
            raise UsageError(f"{shown!r} is no webhook: an http:// or https:// address is")
    if problem := apprise_problem(config.apprise.split()):
        raise UsageError(problem)
    try:
        words = shlex.split(config.command)
    except ValueError as error:
        shown = mask(config.command)
        raise UsageError(f"the notification command {shown!r}: {error}") from None
    if config.command and not words:
        raise UsageError("the notification command is empty")


def apprise_problem(urls: Sequence[str]) -> str:
    """Why Apprise cannot send to these addresses here; empty if it can."""
    if not all(_SCHEME.match(url) for url in urls):
        return "notify.apprise: what is no address such as slack://... stands in it"
    if urls and importlib.util.find_spec("apprise") is None:
        return "notify.apprise needs the package apprise: pip install 'ray-sentinel[notify]'"
    return ""


class Notifier:
    """Sends in a thread of its own."""

    def __init__(
        self,
        config: NotifyConfig,
        *,
        delays: Sequence[float] = DELAYS,
        sent: Callable[[Notice], None] = lambda notice: None,
    ) -> None:
        """``sent`` is called, on the sending thread, once all receivers have got a notice. Raises
        UsageError for settings that can never work."""
        check(config)
        self._webhooks, self._apprise_urls = config.webhook.split(), config.apprise.split()
        self._command, self._events = config.command, config.events.split()
        self._style = cast(Style, config.style)
        self._delays, self._sent = tuple(delays), sent
        self._waiting: deque[Notice] = deque()
        self._known: OrderedDict[str, None] = OrderedDict()
        self._change = threading.Condition()
        self._closed = threading.Event()
        self._busy = False
        self._thread: threading.Thread | None = None
        self.problem = ""
        """What went wrong last; empty once something was sent again."""
        self.dropped = 0
        """Notices that nobody took, or for which there was no room."""

    def notify(self, notice: Notice) -> bool:
        """Queue a notice, unless it was queued before or nobody wants it. Never waits."""
        notice = mask_record(notice)
        wanted = self._webhooks or self._apprise_urls or self._command
        if not wanted or (self._events and notice.event not in self._events):
            return False
        with self._change:
            if notice.key in self._known or self._closed.is_set():
                return False
            self._known[notice.key] = None
            while len(self._known) > MOST_KNOWN:
                self._known.popitem(last=False)
            if len(self._waiting) >= MOST_WAITING:
                self._waiting.popleft()
                self.dropped += 1
            self._waiting.append(notice)
            if self._thread is None:
                self._thread = threading.Thread(
                    target=self._run, name="ray-sentinel-notify", daemon=True
                )
                self._thread.start()
            self._change.notify_all()
        return True

    def mark_sent(self, keys: Iterable[str]) -> None:
        """Mark these as sent by an earlier process."""
        with self._change:
            self._known.update(dict.fromkeys(keys))

    def close(self, seconds: float = 5.0) -> bool:
        """Send what is queued, for at most ``seconds``. Returns whether all was sent."""
        with self._change:
            sent = self._change.wait_for(lambda: not self._waiting and not self._busy, seconds)
            self._closed.set()
            self._change.notify_all()
        return sent

    def _run(self) -> None:
        while True:
            with self._change:
                self._change.wait_for(lambda: self._waiting or self._closed.is_set())
                if self._closed.is_set():
                    return
                notice = self._waiting.popleft()
                self._busy = True
            self._send(notice)
            with self._change:
                self._busy = False
                self._change.notify_all()

    def _send(self, notice: Notice) -> None:
        receivers: list[tuple[str, Callable[[], None]]] = [
            (url, lambda url=url: self._post(url, notice))  # type: ignore[misc]
            for url in self._webhooks
        ]
        receivers += [
            (url, lambda url=url: self._send_by_apprise(url, notice))  # type: ignore[misc]
            for url in self._apprise_urls
        ]
        if self._command:
            receivers.append((self._command, lambda: self._run_command(notice)))
        failed = self.dropped
        for delay in (0.0, *self._delays):
            if delay and self._closed.wait(delay):
                break
            receivers = [one for one in receivers if not self._tried(*one)]
            if not receivers:
                if self.dropped == failed:
                    self._sent(notice)
                return
        self.dropped += len(receivers)
        log.warning("nobody was told of %s: %s", notice.key, self.problem)

    def _tried(self, name: str, send: Callable[[], None]) -> bool:
        """Whether there is nothing more to be tried: it was sent, or never will be."""
        final = False
        try:
            send()
        except urllib.error.HTTPError as error:
            error.close()
            self.problem = f"{_public(name)} answered {error.code}"
            final = error.code in _FINAL
        except (MissingPartError, UsageError) as error:
            self.problem, final = f"{_public(name)}: {mask(str(error))}", True
        except (OSError, ValueError, HTTPException) as error:
            why = getattr(error, "reason", error)
            self.problem = f"{_public(name)}: {_without(name, str(why)) or type(error).__name__}"
        else:
            self.problem = ""
            return True
        if final:
            self.dropped += 1
            log.warning("a notification cannot be delivered: %s", self.problem)
        return final

    def _post(self, url: str, notice: Notice) -> None:
        data = body(notice, self._style, url)
        headers = {"Content-Type": "application/json", "User-Agent": "ray-sentinel"}
        request = urllib.request.Request(url, data, headers)
        with _OPENER.open(request, timeout=SECONDS) as answer:
            answer.read(1 << 16)

    def _send_by_apprise(self, url: str, notice: Notice) -> None:
        about = f"{notice.job}: {notice.event}" if notice.job else notice.event
        asked = AppriseNotice(url=url, event=notice.event, title=about, text=notice.text)
        done = process.run(
            process.python_module("ray_sentinel.supervise.notify.apprise_sender"),
            deadline=APPRISE_SECONDS,
            input=msgspec.json.encode(asked),
            env=os.environ,
            max_output=1 << 16,
        )
        if done.ok:
            return
        if done.returncode == UNKNOWN:
            raise UsageError("no service of Apprise's has such an address: see its documentation")
        # What it printed is not logged: it may hold the address.
        why = f"its process ended with status {done.returncode}"
        if done.timed_out:
            why = f"it took longer than {APPRISE_SECONDS:.0f} s"
        elif done.returncode == NOT_SENT:
            why = "the service did not take it"
        raise OSError(f"{why}; `apprise -v -b test URL` says why")

    def _run_command(self, notice: Notice) -> None:
        done = process.run(
            shlex.split(self._command),
            deadline=SECONDS,
            input=msgspec.json.encode(notice),
            env={**os.environ, **variables(notice)},
            max_output=1 << 16,
        )
        if not done.ok:
            raise OSError(done.explain())


def _public(name: str) -> str:
    """A webhook's address as it is shown: only its host, because the rest holds the secret."""
    parts = address(name)
    if parts is None and (scheme := _SCHEME.match(name)):
        return f"{scheme[0]}..."
    return f"{parts.scheme}://{parts.hostname}/..." if parts is not None else mask(name)


def _without(name: str, text: str) -> str:
    """An error's text: it may say the address, its path or query, or what a command printed."""
    parts = address(name)
    if parts is not None:
        path = f"{parts.path}?{parts.query}" if parts.query else parts.path
        for secret in (name, path, parts.path, parts.query, parts.password or ""):
            if len(secret) > 1:
                text = text.replace(secret, MASK)
    return mask(text)
