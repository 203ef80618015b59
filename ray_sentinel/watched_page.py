"""The coordinator's page as a supervised run asks it: found, and believed only where it proves
itself."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any
from urllib.parse import urlsplit

from ray_sentinel.errors import UnreachableError
from ray_sentinel.http.access import PageCredential
from ray_sentinel.http.page_client import (
    NoTokenError,
    PageClient,
    UnprovenError,
    page_client,
    split_link,
)
from ray_sentinel.http.page_file import PageEntry, pages

PAGE_SECONDS = 3.0
"""Seconds to wait for one answer of the coordinator's page."""


class WatchedPage:
    """The page that was named, or else this user's on this machine, which may come and go
    meanwhile."""

    def __init__(
        self,
        link: str = "",
        *,
        port: int = 0,
        environ: Mapping[str, str] = os.environ,
        say: Callable[[str], None] = lambda text: None,
    ) -> None:
        """``link`` is the page's URL, with its token or without; "" for the one that is found, and
        among several the one of the cluster that ``environ`` names, or of the configured ``port``.
        ``say`` is called once with each thing that was not believed. Raises UsageError for anything
        but a link.
        """
        self._link, self._port, self._environ, self._say = link, port, environ, say
        self._said: set[str] = set()
        self._client: PageClient | None = None
        if link and (token := split_link(link)[1]):
            PageCredential.of_token(token, "what the page's link holds")

    def get_json(self, path: str) -> Any:
        """The page's answer. Raises UnreachableError, also if no server proves to be the page."""
        try:
            client = self._client or (self._named() if self._link else self._found())
            return client.get_json(path, seconds=PAGE_SECONDS)
        except UnreachableError as error:
            self._client = None  # it may be another one next time
            if isinstance(error, UnprovenError | NoTokenError):
                self._report_once(str(error))
            raise

    def _named(self) -> PageClient:
        self._client = page_client(self._link, self._environ)
        return self._client

    def _found(self) -> PageClient:
        """Find the page again each time: the cluster's own coordinator may come while another is
        there."""
        entries, problems = pages()
        for problem in problems:
            self._report_once(problem)
        fitting = best(entries, self._environ.get("RAY_ADDRESS", ""), self._port)
        if not fitting:
            raise UnreachableError("no coordinator of this user serves a page on this machine")
        if len(fitting) > 1:
            urls = ", ".join(entry.url for entry in fitting)
            self._report_once(
                f"{len(fitting)} pages are served here, and the first is asked: {urls}"
            )
        return PageClient(fitting[0].url, fitting[0].credential())

    def _report_once(self, text: str) -> None:
        if text not in self._said:
            self._said.add(text)
            self._say(text)


def best(entries: Sequence[PageEntry], cluster: str, port: int) -> Sequence[PageEntry]:
    """The pages of the named cluster, and among these those of the configured port, if there are
    any.

    A host has several names: where none is the named cluster's to the letter, those whose control
    store has its port may be. ``auto`` and addresses of other kinds name no cluster.
    """
    if cluster.rpartition(":")[2].isdigit() and "://" not in cluster:
        there = [entry for entry in entries if entry.cluster == cluster]
        entries = there or [entry for entry in entries if _may_be(entry.cluster, cluster)]
    of_port = [e for e in entries if port and port in (e.wanted_port, urlsplit(e.url).port)]
    return of_port or entries


def _may_be(cluster: str, named: str) -> bool:
    return not cluster or cluster.rpartition(":")[2] == named.rpartition(":")[2]
