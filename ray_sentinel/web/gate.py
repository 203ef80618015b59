"""The page's door: who is let in, and how a browser gets in by the link; see ``http.access``.

Without proof there is only ``/healthz``. Let in are:

* our own programs, which sign; their answers, including refusals, are signed
* ``Authorization: Bearer TOKEN``
* a browser that has the cookie. It gets it with any path that has ``?token=TOKEN``, and is
  redirected to the same path without the token, so that none stays in its address bar

A browser says which site a request comes from (``Sec-Fetch-Site``). What it asks for another page,
also for one on another port of this host, is refused, except for a link that is opened: that page
could read no answer, but would keep us busy, with this browser's cookie. Programs send no such
header.

Cookies know no ports: a browser shows ours to every server on the same host that it visits. So the
cookie is not the token, is named after the port that the browser dialled, and lets its thief read,
never answer.
"""

from __future__ import annotations

from http import HTTPStatus
from urllib.parse import parse_qsl, quote

import msgspec

from ray_sentinel import regex as re
from ray_sentinel.http.access import (
    PROOF_HEADER,
    REALM,
    SCHEME,
    RequestVerifier,
    cookie_of,
    equal,
    token_of,
)
from ray_sentinel.http.server import Answer, Request, Response
from ray_sentinel.web.routes import HEADERS, local

OPEN = "/healthz"
NOT_SIGNED = HTTPStatus.NOT_ACCEPTABLE
BEARER = "Bearer "
REFUSED = (
    "This page is shown to anyone who has its link: `ray-sentinel status`, where the job runs, "
    "prints it, with a token. Programs send it as `Authorization: Bearer TOKEN`.\n"
)
_REFUSED_PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>ray_sentinel</title></head><body>
<h1>This page needs its link</h1>
<p>Run <code>ray-sentinel status</code> where the job runs (in the head pod, say) and open the link
that it prints. It holds a token; this browser has none, or one of another deployment.</p>
<p>You have opened the link already? <a href="/">Go to the page</a>.</p>
</body></html>
"""
_REFUSED_POLICY = ("Content-Security-Policy", "default-src 'none'; frame-ancestors 'none'")
OWN_SITES = ("same-origin", "none")
"""From the page itself, or from a person (by the address bar, or a bookmark). The others are
"same-site" and "cross-site"."""
OTHER_PAGE = b"pages of other sites, or of other ports, may only link here\n"
_PORT = re.compile(r":([0-9]{1,5})$")


class PageGate:
    """A ``Guard`` of the page's server."""

    def __init__(self, secret: bytes, address: str) -> None:
        """``address`` is ``HOST:PORT`` that the server listens on."""
        self._verifier = RequestVerifier(secret, address)
        self._token, self._cookie = token_of(secret), cookie_of(secret)

    async def __call__(self, request: Request, answer: Answer) -> Response:
        if not local(request.headers.get("host", "localhost")):
            return _own(b"ask for this page as localhost\n", HTTPStatus.FORBIDDEN)
        if _is_of_other_page(request):
            return _own(OTHER_PAGE, HTTPStatus.FORBIDDEN)
        authorization = request.headers.get("authorization", "")
        if request.path == OPEN:
            return await answer(request)
        if authorization.startswith(SCHEME):
            return await self._signed(request, authorization, answer)
        if authorization.startswith(BEARER):
            token = authorization.removeprefix(BEARER).strip()
            return await answer(request) if equal(token, self._token) else _refused(request)
        if self._has_cookie(request):
            return await answer(request) if not self._brings_token(request) else _sent_on(request)
        if self._brings_token(request):
            value = f"{cookie_name(request)}={self._cookie}; Path=/; HttpOnly; SameSite=Strict"
            return _sent_on(request, ("Set-Cookie", value))
        return _refused(request)

    async def _signed(self, request: Request, authorization: str, answer: Answer) -> Response:
        client = self._verifier.verify(authorization, request.method, request.path)
        if client is None:
            return _refused(request)
        response = await answer(request) if not client.late else _refused(request)
        if response.stream is not None:
            response = _own(b"a stream cannot be signed; ask for /api/v1/page\n", NOT_SIGNED)
        proof = (PROOF_HEADER, client.proof(response.status, response.body))
        return msgspec.structs.replace(response, headers=(*response.headers, proof))

    def _has_cookie(self, request: Request) -> bool:
        # There may be several of one name: servers on other ports can set them too.
        wanted = cookie_name(request)
        pairs = (one.strip().partition("=") for one in request.headers.get("cookie", "").split(";"))
        return any(equal(value, self._cookie) for name, _, value in pairs if name == wanted)

    def _brings_token(self, request: Request) -> bool:
        if "token=" not in request.query:
            return False
        try:
            fields = parse_qsl(request.query, max_num_fields=16)
        except ValueError:
            return False
        return any(name == "token" and equal(value, self._token) for name, value in fields)


def cookie_name(request: Request) -> str:
    """Named after the port that the browser dialled: two tunnels may lead to two deployments."""
    port = _PORT.search(request.headers.get("host", ""))
    return f"ray_sentinel_{port[1] if port else 80}"


def _is_of_other_page(request: Request) -> bool:
    headers = request.headers
    opened = headers.get("sec-fetch-mode"), headers.get("sec-fetch-dest")
    own = headers.get("sec-fetch-site", "none") in OWN_SITES
    return not own and opened != ("navigate", "document")


def _sent_on(request: Request, *headers: tuple[str, str]) -> Response:
    # One slash: two would name another host.
    path = "/" + quote(request.path.lstrip("/\\"), safe="/%:@!$&'()*+,;=~-._")
    return _own(b"", HTTPStatus.SEE_OTHER, ("Location", path), *headers)


def _refused(request: Request) -> Response:
    challenge = ("WWW-Authenticate", f"Bearer {REALM}")
    if "text/html" not in request.headers.get("accept", ""):
        return _own(REFUSED.encode(), HTTPStatus.UNAUTHORIZED, challenge)
    response = _own(_REFUSED_PAGE.encode(), HTTPStatus.UNAUTHORIZED, challenge, _REFUSED_POLICY)
    return msgspec.structs.replace(response, content_type="text/html; charset=utf-8")


def _own(body: bytes, status: HTTPStatus, *headers: tuple[str, str]) -> Response:
    return Response(body=body, status=int(status), headers=(*HEADERS, *headers))
