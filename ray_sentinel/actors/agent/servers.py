"""Queries the inference engines and Ray Serve on this node for their load, while there are any."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any

from ray_sentinel.actors.loops import Complaints, Loop
from ray_sentinel.bounded import Bounded
from ray_sentinel.errors import SentinelError, UnreachableError
from ray_sentinel.evidence.server_load import SERVE, ServerLoad, parse_load, parse_serve
from ray_sentinel.http.client import get
from ray_sentinel.model.identity import Rank
from ray_sentinel.model.metrics import Family, Metric, families_of
from ray_sentinel.progress.discovery.front_end import metrics_url
from ray_sentinel.progress.discovery.titles import engine_of

log = logging.getLogger(__name__)

OF_JOB = ("job",)
UP = Metric("server_up", "gauge", "1 while the engine's own metrics can be read.", OF_JOB)
REQUESTS = Metric(
    "server_requests", "gauge", "Requests that run or wait in the engine.", ("job", "state")
)
FINISHED = Metric(
    "server_requests_finished_total", "counter", "Requests that were answered.", OF_JOB
)
LONGEST = Metric(
    "server_request_longest_seconds", "gauge", "No answered request took longer.", OF_JOB
)
TOKENS = Metric(
    "server_tokens_total", "counter", "Tokens that the engine has worked on.", ("job", "kind")
)
CACHE = Metric("server_kv_cache_ratio", "gauge", "Use of the fullest key-value cache.", OF_JOB)
SPEED = Metric("server_tokens_per_second", "gauge", "Tokens generated, as the engine says.", OF_JOB)

ASK_SECONDS = 5.0
"""Seconds between two requests to the servers."""
ANSWER_SECONDS = 2.0
"""Seconds for a whole answer: one that trickles in does not delay the others longer."""
MOST_BYTES = 8 << 20
"""Most bytes of one answer; the histograms of many models are long."""
SEARCH_SECONDS = 30.0
"""Seconds between two searches for an endpoint that was not found, or that has gone."""
STALE_SECONDS = 3 * ASK_SECONDS
"""Seconds after which an answer is no longer served."""


class ServerPoll:
    """Queries the servers on a thread of its own, started with the first engine. Another thread
    calls ``watch`` and ``families``."""

    def __init__(
        self,
        ray_metrics: Callable[[], str],
        find: Callable[[int, str], str] = metrics_url,
    ) -> None:
        """``ray_metrics`` gives the URL of the Ray node's own metrics, which Serve's are among;
        ``find`` that of an engine, by the pid of a rank and the engine's name."""
        self._ray_metrics, self._find = ray_metrics, find
        self._ranks: dict[str, Rank] = {}
        self._serves = False
        self._urls: dict[str, str] = {}
        self._search_at: dict[str, float] = {}
        self._answers: dict[str, tuple[float, ServerLoad | None]] = {}
        self._loop: Loop | None = None
        self._complaints = Complaints()
        self.asked: Bounded[str, bytes | SentinelError] = Bounded(ANSWER_SECONDS)
        self._placing: Bounded[str, str] = Bounded(ANSWER_SECONDS, most=1)

    def watch(self, ranks: Iterable[Rank], serves: bool) -> None:
        """Set the current ranks, of which those of engines count, one for each job. ``serves``:
        there are replicas of Ray Serve."""
        self._serves = serves
        engines = (rank for rank in ranks if rank.role == "engine" and rank.source == "title")
        self._ranks = {rank.id.job: rank for rank in engines}
        if (self._ranks or serves) and self._loop is None:
            self._loop = Loop(ASK_SECONDS, self.poll, name="ray-sentinel-servers")

    def close(self) -> None:
        """Stop polling."""
        if self._loop is not None:
            self._loop.stop()

    def poll(self) -> None:
        """Query each server once."""
        ranks, serves = self._ranks, self._serves
        for job, rank in ranks.items():
            if url := self._url(job, rank):
                self._answers[job] = (time.monotonic(), self._ask_engine(job, url))
        if serves:
            now = time.monotonic()
            self._answers |= {job: (now, load) for job, load in self._ask_ray().items()}
        for table in (self._urls, self._search_at, self._answers):
            for job in [job for job in table if job not in ranks]:
                if not (serves and job.startswith(SERVE)):
                    del table[job]

    def families(self) -> tuple[Family, ...]:
        """``server_*`` of the engines that answered recently, or should have."""
        edge = time.monotonic() - STALE_SECONDS
        return families_of(
            row
            for job, (at, load) in sorted(self._answers.copy().items())
            if at >= edge
            for row in _rows(job, load)
        )

    def _url(self, job: str, rank: Rank) -> str:
        now = time.monotonic()
        if job not in self._urls and now >= self._search_at.get(job, 0.0):
            self._search_at[job] = now + SEARCH_SECONDS
            if url := self._find(rank.process.pid, engine_of(rank.command)):
                self._urls[job] = url
        return self._urls.get(job, "")

    def _ask_engine(self, job: str, url: str) -> ServerLoad | None:
        try:
            return parse_load(self._text(url))
        except SentinelError as error:
            self._complain(f"{job}: {error}")
            del self._urls[job]  # it may have moved
            return None

    def _ask_ray(self) -> dict[str, ServerLoad]:
        try:
            # Ray's control store is asked for it, which may be away.
            places, failed = self._placing.run({"ray": self._ray_metrics})
            if failed:
                raise UnreachableError(f"Ray's control store: {failed['ray']}")
            return parse_serve(self._text(places["ray"]))
        except SentinelError as error:
            self._complain(f"Ray Serve: {error}")
            return {}

    def _text(self, url: str) -> str:
        """The server's answer. Raises UnreachableError."""
        answers, failures = self.asked.run({url: partial(_ask, url)})
        if why := failures.get(url):
            raise UnreachableError(f"{url}: {why}")
        if isinstance(answer := answers[url], SentinelError):
            raise answer
        return answer.decode("utf-8", "replace")

    def _complain(self, what: str) -> None:
        if self._complaints.is_new(what, time.monotonic()):
            log.warning("%s", what)


def _ask(url: str) -> bytes | SentinelError:
    try:
        return get(url, seconds=ANSWER_SECONDS, most_bytes=MOST_BYTES)
    except SentinelError as error:
        return error


def _rows(job: str, load: ServerLoad | None) -> Iterator[tuple[Any, ...]]:
    yield UP, load is not None, job
    if load is None:
        return
    yield REQUESTS, load.running, job, "running"
    yield REQUESTS, load.waiting, job, "waiting"
    yield FINISHED, load.finished, job
    yield LONGEST, load.longest, job
    for kind, value in sorted(load.tokens.items()):
        yield TOKENS, value, job, kind
    yield CACHE, load.cache_ratio, job
    yield SPEED, load.tokens_per_second, job
