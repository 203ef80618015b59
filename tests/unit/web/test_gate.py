"""Who is let in by the page's door, without a socket."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator

import pytest

from ray_sentinel.http.access import (
    PROOF_HEADER,
    SECRET_BYTES,
    PageCredential,
    SignedRequest,
    cookie_of,
    token_of,
)
from ray_sentinel.http.server import Request, Response
from ray_sentinel.web.gate import Answer, PageGate

SECRET = bytes(range(SECRET_BYTES))  # tests are named after what follows from it
TOKEN, COOKIE = token_of(SECRET), cookie_of(SECRET)
PATHS = ("/", "/page.js", "/api/v1/status", "/api/v1/history", "/incidents/0001", "/nowhere")


def ask(path: str = "/", query: str = "", method: str = "GET", **headers: str) -> Response:
    async def answer(_request: Request) -> Response:
        return Response(body=b"the state")

    named = {"host": "127.0.0.1:9401", **headers}
    request = Request(method=method, path=path, headers=named, query=query)
    return asyncio.run(PageGate(SECRET, "127.0.0.1:9401")(request, answer))  # type: ignore[arg-type]


def is_in(response: Response) -> bool:
    return response.status == 200 and response.body == b"the state"


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("method", ["GET", "HEAD", "POST"])
@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"authorization": "Bearer "},
        {"authorization": f"Bearer {TOKEN[:-1]}"},
        {"authorization": f"Bearer {COOKIE}"},
        {"authorization": f"Basic {TOKEN}"},
        {"authorization": f"RaySentinel {TOKEN}"},
        {"cookie": f"ray_sentinel_9401={TOKEN}"},
        {"cookie": f"ray_sentinel_9402={COOKIE}"},
        {"cookie": COOKIE},
        {"cookie": ";;;=;"},
    ],
)
def test_without_proof_nobody_gets_in(path: str, method: str, headers: dict[str, str]) -> None:
    response = ask(path, method=method, **headers)
    assert response.status == 401
    assert b"`ray-sentinel status`" in response.body
    assert dict(response.headers)["Cache-Control"] == "no-store"
    assert TOKEN.encode() not in response.body


@pytest.mark.parametrize(
    "query", [f"token={COOKIE}", "token=", f"token={TOKEN}x", f"tok={TOKEN}", "token=%zz", "&" * 99]
)
def test_a_wrong_token_in_a_link(query: str) -> None:
    assert ask(query=query).status == 401


def test_a_person_is_told_how_to_get_in() -> None:
    response = ask(accept="text/html,application/xhtml+xml")
    assert response.status == 401
    assert response.content_type.startswith("text/html")
    assert b"ray-sentinel status" in response.body


def test_healthz_is_open() -> None:
    assert is_in(ask("/healthz"))
    assert ask("/healthz/", "").status == 401


def test_the_token_and_the_cookie_let_in() -> None:
    assert is_in(ask("/api/v1/status", authorization=f"Bearer {TOKEN}"))
    # Another server of this host may have set one of the same name.
    assert is_in(ask(cookie=f"a=b; ray_sentinel_9401=x; ray_sentinel_9401={COOKIE}"))


@pytest.mark.parametrize("host", ["127.0.0.1:9401", "localhost:8000", "localhost", "[::1]:8000"])
def test_a_browser_keeps_a_cookie_of_the_port_that_it_dialled(host: str) -> None:
    response = ask("/incidents/0001", f"x=1&token={TOKEN}", host=host)
    headers = dict(response.headers)
    assert (response.status, response.body) == (303, b"")
    assert headers["Location"] == "/incidents/0001"
    cookie, *how = headers["Set-Cookie"].split("; ")
    assert set(how) == {"Path=/", "HttpOnly", "SameSite=Strict"}
    assert cookie.startswith(f"ray_sentinel_{host.rpartition(':')[2] if ':' in host else 80}=")
    assert TOKEN not in cookie
    assert is_in(ask(host=host, cookie=cookie))
    again = ask(query=f"token={TOKEN}", host=host, cookie=cookie)
    assert dict(again.headers)["Location"] == "/", "the token does not stay in the address bar"


@pytest.mark.parametrize(
    "path", ["//evil.example/", "/\\evil.example", "\\\\evil.example", "/a\nb"]
)
def test_it_sends_nobody_elsewhere(path: str) -> None:
    location = dict(ask(path, f"token={TOKEN}").headers)["Location"]
    assert location[0] == "/"
    assert location[1] not in "/\\"
    assert "\n" not in location


def test_a_foreign_name_is_refused_first() -> None:
    for path in ("/", "/healthz"):
        response = ask(path, host="evil.example:9401", authorization=f"Bearer {TOKEN}")
        assert response.status == 403


def fetched(path: str, site: str, mode: str = "no-cors", dest: str = "empty") -> Response:
    sent = {"sec-fetch-site": site, "sec-fetch-mode": mode, "sec-fetch-dest": dest}
    return ask(path, cookie=f"ray_sentinel_9401={COOKIE}", **sent)


@pytest.mark.parametrize("path", [*PATHS, "/healthz", "/api/v1/page/output", "/api/v1/live"])
@pytest.mark.parametrize("site", ["same-site", "cross-site", "what comes after these"])
def test_what_a_browser_asks_for_another_page_is_refused(path: str, site: str) -> None:
    for mode, dest in (
        ("no-cors", "empty"), ("cors", "empty"), ("no-cors", "image"), ("no-cors", "script"),
        ("navigate", "iframe"), ("navigate", "embed"), ("websocket", "document"),
    ):  # fmt: skip
        assert fetched(path, site, mode, dest).status == 403
    assert is_in(fetched(path, site, "navigate", "document")), "a link that is opened"


@pytest.mark.parametrize("site", ["same-origin", "none"])
def test_what_a_browser_asks_for_this_page_is_answered(site: str) -> None:
    assert is_in(fetched("/api/v1/page", site, "cors"))
    assert is_in(fetched("/page.js", site, "no-cors", "script"))
    assert ask("/api/v1/page", **{"sec-fetch-site": site}).status == 401, "it is no proof"


def test_a_stream_is_for_browsers_and_not_for_who_wants_a_signature() -> None:
    async def pieces() -> AsyncGenerator[bytes, None]:
        yield b"the state"

    async def answer(_request: Request) -> Response:
        return Response(body=b"", stream=pieces)

    gate = PageGate(SECRET, "127.0.0.1:9401")
    credential = PageCredential.of_secret(SECRET, "127.0.0.1:9401")
    signed = SignedRequest(credential, "/api/v1/live", time.time())
    for authorization, status in ((f"Bearer {TOKEN}", 200), (signed.authorization, 406)):
        headers = {"host": "127.0.0.1:9401", "authorization": authorization}
        request = Request(method="GET", path="/api/v1/live", headers=headers)
        response = asyncio.run(_answered(gate, request, answer))
        assert (response.status, response.stream is None) == (status, status == 406)
    assert signed.proven(dict(response.headers)[PROOF_HEADER], 406, response.body) is not None


async def _answered(gate: PageGate, request: Request, answer: Answer) -> Response:
    return await gate(request, answer)
