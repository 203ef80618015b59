"""The HTTP client against servers that answer well, badly, slowly or not at all."""

from __future__ import annotations

import contextlib
import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import numpy as np
import pytest

from ray_sentinel.diagnose.series import Selector
from ray_sentinel.errors import InputError, UnreachableError
from ray_sentinel.store.prometheus import http as prometheus_http
from ray_sentinel.store.prometheus.api import PrometheusSource

Answer = Callable[[BaseHTTPRequestHandler], tuple[int, bytes]]


@contextmanager
def server(answer: Answer) -> Iterator[str]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            code, body = answer(self)
            self.send_response(code)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """Quiet."""

    with serving(Handler) as url:
        yield url


@contextmanager
def serving(handler: type[BaseHTTPRequestHandler]) -> Iterator[str]:
    listening = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=listening.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{listening.server_address[1]}"
    finally:
        listening.shutdown()
        listening.server_close()


def matrix(*series: tuple[dict[str, str], list[list[object]]]) -> bytes:
    result = [{"metric": metric, "values": values} for metric, values in series]
    return json.dumps(
        {"status": "success", "data": {"resultType": "matrix", "result": result}}
    ).encode()


def test_values_land_in_their_cells() -> None:
    body = matrix(
        ({"__name__": "m", "host": "a"}, [[100, "1"], [120, "NaN"], [130, "+Inf"]]),
        ({"host": "b"}, []),
    )
    with server(lambda _: (200, body)) as url:
        grid = PrometheusSource(url).query_range(Selector("m"), 100.0, 130.0, 10.0)
    assert grid.labels == ({"host": "a"}, {"host": "b"})
    assert np.array_equal(grid.values[0], [1, np.nan, np.inf, np.inf], equal_nan=True)
    assert np.isnan(grid.values[1]).all()


def test_an_error_that_passes_is_tried_again() -> None:
    calls: list[str] = []

    def flaky(handler: BaseHTTPRequestHandler) -> tuple[int, bytes]:
        calls.append(handler.path)
        return (503, b"starting") if len(calls) < 2 else (200, b'{"data": ["up"]}')

    with server(flaky) as url:
        assert PrometheusSource(url).families() == ("up",)
    assert len(calls) == 2


@pytest.mark.parametrize(
    ("code", "body", "error", "says"),
    [
        (200, b"<html>hello</html>", InputError, "address"),
        (200, b'{"state": 1}', InputError, "address"),
        (404, b"not found", InputError, "address"),
        (401, b"", UnreachableError, "401"),
        (500, b"boom", UnreachableError, "boom"),
        (422, b'{"status":"error","error":"too many samples"}', UnreachableError, "too many"),
    ],
)
def test_what_answers_badly_is_said(
    code: int, body: bytes, error: type[Exception], says: str
) -> None:
    with server(lambda _: (code, body)) as url, pytest.raises(error, match=says):
        PrometheusSource(url).families()


def test_a_matrix_that_is_none_is_said() -> None:
    with server(lambda _: (200, b'{"data": [1')) as url, pytest.raises(InputError, match="answer"):
        PrometheusSource(url).query_range(Selector("m"), 0.0, 1.0, 1.0)


def test_a_slow_answer_meets_the_deadline() -> None:
    def slow(_: BaseHTTPRequestHandler) -> tuple[int, bytes]:
        time.sleep(1.0)
        return 200, b"{}"

    with server(slow) as url, pytest.raises(UnreachableError, match="no answer within"):
        PrometheusSource(url, deadline=0.2).families()


def test_nobody_there() -> None:
    with pytest.raises(UnreachableError, match="does not answer"):
        PrometheusSource("http://127.0.0.1:1").families()


@pytest.mark.parametrize("url", ["file:///etc/passwd", "ftp://x", "http://"])
def test_other_schemes_are_refused(url: str) -> None:
    with pytest.raises(InputError, match="http://HOST:PORT"):
        PrometheusSource(url)


def matrix_of(values: str) -> bytes:
    return (
        b'{"status":"success","data":{"resultType":"matrix","result":[{"metric":{},"values":%b}]}}'
        % values.encode()
    )


ASKS: dict[str, Callable[[PrometheusSource], object]] = {
    "families": lambda source: source.families(),
    "span": lambda source: source.find_span(None),
    "label sets": lambda source: source.label_sets("m", 0.0, 1.0),
    "samples": lambda source: source.samples(Selector("m"), 0.0, 1.0),
}


@pytest.mark.parametrize(
    ("ask", "body"),
    [
        *((ask, body) for ask in ASKS for body in (b'{"data": 7}', b"[" * 100_000)),
        ("families", b'{"data": [7]}'),
        ("span", b'{"data": {"headStats": {"minTime": "x"}}}'),
        ("label sets", b'{"data": [{"a": 1}]}'),
        ("samples", matrix_of("[[1]]")),
        ("samples", matrix_of('[[1, "x"]]')),
        ("samples", matrix_of('[["1", [2]], 3]')),
    ],
)
def test_data_of_another_kind_is_said(ask: str, body: bytes) -> None:
    with (
        server(lambda _: (200, body)) as url,
        pytest.raises(InputError, match="not as a Prometheus does"),
    ):
        ASKS[ask](PrometheusSource(url))


def test_times_that_nobody_asked_for_are_left_out() -> None:
    body = matrix_of('[[1e308,"1"],[-5,"2"],[90,"3"],[110,"4"],[500,"5"],["NaN","6"]]')
    with server(lambda _: (200, body)) as url:
        grid = PrometheusSource(url).query_range(Selector("m"), 100.0, 130.0, 10.0)
        (samples,) = PrometheusSource(url).samples(Selector("m"), 0.0, 1000.0)
    assert np.array_equal(grid.values[0], [np.nan, 4, np.nan, np.nan], equal_nan=True)
    assert samples.times.tolist() == [90.0, 110.0, 500.0]


def test_a_lowest_time_that_is_no_number_is_done_without() -> None:
    def answer(handler: BaseHTTPRequestHandler) -> tuple[int, bytes]:
        if handler.path == "/metrics":
            return 200, b"prometheus_tsdb_lowest_timestamp_seconds pwned\n"
        return 200, matrix_of("[]") if "query" in handler.path else b'{"data": ["up"]}'

    with server(answer) as url:
        assert PrometheusSource(url).span() is None


def test_an_answer_without_an_end_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prometheus_http, "MOST_BYTES", 1 << 20)
    with (
        server(lambda _: (200, b" " * (3 << 20))) as url,
        pytest.raises(InputError, match="more than 1 MiB"),
    ):
        PrometheusSource(url).families()


def test_an_answer_that_claims_to_be_endless_is_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prometheus_http, "TRIES", 1)

    class Endless(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("Content-Length", str(10**25))
            self.end_headers()
            self.wfile.write(b'{"data": []}')

        def log_message(self, *_: object) -> None:
            """Quiet."""

    with serving(Endless) as url, pytest.raises(UnreachableError, match="does not answer"):
        PrometheusSource(url).families()


def test_an_answer_that_trickles_in_meets_the_deadline() -> None:
    class Trickling(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.end_headers()
            with contextlib.suppress(OSError):
                while True:
                    self.wfile.write(b" ")
                    self.wfile.flush()

        def log_message(self, *_: object) -> None:
            """Quiet."""

    with serving(Trickling) as url, pytest.raises(UnreachableError, match="no answer within"):
        PrometheusSource(url, deadline=0.3).families()
