"""Asking the coordinator's page so that both sides prove who they are; see ``access``."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Mapping
from http import HTTPStatus
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl, urlsplit, urlunsplit

from ray_sentinel.errors import UnreachableError, UsageError
from ray_sentinel.http.access import PROOF_HEADER, REALM, PageCredential, SignedRequest
from ray_sentinel.http.client import MOST_BYTES, RefusedError, address, exchange

if TYPE_CHECKING:  # 7 ms, for those who look for a page on this machine only
    from ray_sentinel.http.page_file import PageEntry

TOKEN_VARIABLE = "RAY_SENTINEL_TOKEN"
TOKEN_FILE_VARIABLE = "RAY_SENTINEL_TOKEN_FILE"
_MOST_TOKEN_BYTES = 4096

HOW_TO_GET_IN = (
    "`ray-sentinel status --link`, where the job runs, prints the page's link with its token: give "
    f"that link, or set {TOKEN_VARIABLE} or {TOKEN_FILE_VARIABLE}"
)


class UnprovenError(UnreachableError):
    """Somebody answers without proving to be the page: nothing of the answer is believed."""


class NoTokenError(UnreachableError):
    """There is nothing to ask a page with: neither a token, nor the file of a page of ours."""


class PageClient:
    """One page. What it answers is its own, or an error is raised."""

    def __init__(self, root: str, credential: PageCredential) -> None:
        """``root`` is the page's URL. A proxy of the environment is used, except for a page of this
        user on this machine."""
        self.root = root.rstrip("/")
        self._credential = credential
        self._ahead = 0.0
        """Seconds by which the server's clock is ahead of ours, once it has told its time."""

    @property
    def is_bound(self) -> bool:
        """Whether the page is one of this user on this machine, known by its file."""
        return self._credential.kind == "secret"

    def get(self, path: str, *, seconds: float, most_bytes: int = MOST_BYTES) -> bytes:
        """The body of what the page answers to a path of its own, which begins with a slash.

        Raises UnreachableError if nobody answers within ``seconds``; UnprovenError if somebody else
        does; RefusedError if the page itself answers with an error status.
        """
        deadline = time.monotonic() + seconds
        for last in (False, True):
            asked = SignedRequest(self._credential, path, time.time() + self._ahead)
            answer = exchange(
                self.root + path,
                seconds=max(deadline - time.monotonic(), 0.01),
                most_bytes=most_bytes,
                headers={"Authorization": asked.authorization},
                proxy=not self.is_bound,
            )
            its_time = asked.proven(
                answer.headers.get(PROOF_HEADER, ""), answer.status, answer.body
            )
            if its_time is None:
                raise UnprovenError(self._unproven(answer.status))
            if answer.status != HTTPStatus.UNAUTHORIZED or last:
                break
            self._ahead = its_time - time.time()
        if answer.status >= 400:
            text = answer.body[:300].decode("utf-8", "replace").strip()
            why = f"{self.root}{path}: {answer.status} {text}"
            raise RefusedError(why, answer.status, answer.body)
        return answer.body

    def get_json(self, path: str, *, seconds: float) -> Any:
        """``get``, decoded. Raises UnreachableError also if the answer is not JSON."""
        body = self.get(path, seconds=seconds)
        try:
            return json.loads(body)
        except (ValueError, RecursionError):
            raise UnreachableError(f"{self.root}{path} answers, but not with JSON") from None

    def _unproven(self, status: int) -> str:
        whose = "the token" if self._credential.kind == "token" else "the secret of the page's file"
        return (
            f"{self.root}: whoever answers there (status {status}) does not know {whose}, so "
            "nothing of it is believed: it is another program or user, or a page of another "
            "deployment or version"
        )


def split_link(link: str) -> tuple[str, str]:
    """A page's URL without a query, and the token in that; empty if there is none.

    Raises UsageError for anything but a URL, without revealing the token.
    """
    if address(link) is None:
        raise UsageError(f"{link.partition('?')[0]!r} is no address of a page: http://HOST:PORT is")
    parts = urlsplit(link)
    fields = parse_qsl(parts.query, keep_blank_values=True)
    token = next((value for name, value in fields if name == "token"), "")
    root = urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], parts.path, "", ""))
    return root.rstrip("/"), token


def without_token(link: str) -> str:
    """The link to be shown, without its token; anything but a URL is unchanged."""
    return split_link(link)[0] if "token=" in link and address(link) is not None else link


def is_page(link: str, seconds: float) -> bool:
    """Whether the server there describes itself as a page that requires a token."""
    try:
        answer = exchange(f"{split_link(link)[0]}/api/v1/status", seconds=seconds, proxy=True)
    except UnreachableError:
        return False
    return answer.status == HTTPStatus.UNAUTHORIZED and REALM in answer.headers.get(
        "WWW-Authenticate", ""
    )


def given_token(environ: Mapping[str, str] = os.environ) -> tuple[str, str]:
    """The token that the environment has, and where it came from; empty without one.

    Raises UsageError for a file that cannot be read.
    """
    if token := environ.get(TOKEN_VARIABLE, "").strip():
        return token, TOKEN_VARIABLE
    if name := environ.get(TOKEN_FILE_VARIABLE, ""):
        return token_in(Path(name)), f"{TOKEN_FILE_VARIABLE} ({name})"
    return "", ""


def token_in(path: Path) -> str:
    """The token that a file holds, by itself or in a link. Raises UsageError."""
    try:
        with path.expanduser().open("rb") as file:
            text = file.read(_MOST_TOKEN_BYTES).decode("utf-8", "replace").strip()
    except OSError as error:
        raise UsageError(f"{path}: the token cannot be read: {error.strerror}") from None
    return split_link(text)[1] if "://" in text else text


def page_client(
    link: str, environ: Mapping[str, str] = os.environ, *, token: str = ""
) -> PageClient:
    """The client for the page at ``link``, which may hold its token.

    Else with ``token``; else, where the page is one of this user on this machine, with its file;
    else with what the environment has. Raises NoTokenError if there is none of these, and
    UsageError for an invalid token.
    """
    root, in_link = split_link(link)
    if in_link:
        credential = PageCredential.of_token(in_link, "what the link holds")
        return PageClient(root, credential)
    if token:
        return PageClient(root, PageCredential.of_token(token, "what is given"))
    entries, problems = _pages_here()
    for entry in entries:
        if entry.address == _dialled(root):
            return PageClient(entry.url, entry.credential())
    found, source = given_token(environ)
    if found:
        return PageClient(root, PageCredential.of_token(found, source))
    raise NoTokenError(
        "; ".join([f"{root} is not asked without a token: {HOW_TO_GET_IN}", *problems])
    )


def _pages_here() -> tuple[list[PageEntry], list[str]]:
    try:
        from ray_sentinel.http.page_file import pages
    except ImportError:
        return [], []  # a system without locks of files: no coordinator runs there
    return pages()


def _dialled(root: str) -> str:
    """``HOST:PORT`` of a URL, for one of this machine as the pages' files say it."""
    parts = urlsplit(root)
    if parts.scheme != "http" or parts.path:
        return ""
    host = "127.0.0.1" if parts.hostname == "localhost" else parts.hostname
    return f"{host}:{parts.port or 80}"
