"""Signed questions and proven answers, without a socket."""

from __future__ import annotations

import re

import pytest

from ray_sentinel.errors import UsageError
from ray_sentinel.http.access import (
    WINDOW,
    PageCredential,
    RequestVerifier,
    SignedRequest,
    cookie_of,
    equal,
    link_of,
    new_secret,
    token_of,
)

ADDRESS = "127.0.0.1:9401"
PATH = "/api/v1/status"


class Clock:
    """Seconds that pass when a test says so."""

    def __init__(self) -> None:
        self.now = 50.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def secret() -> bytes:
    return new_secret()


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def verifier(secret: bytes, clock: Clock, monkeypatch: pytest.MonkeyPatch) -> RequestVerifier:
    """Made at Unix second 1000."""
    monkeypatch.setattr("ray_sentinel.http.access.time.time", lambda: 1000.0)
    return RequestVerifier(secret, ADDRESS, clock)


def credentials(secret: bytes, address: str = ADDRESS) -> list[PageCredential]:
    token = PageCredential.of_token(token_of(secret), "a test")
    return [PageCredential.of_secret(secret, address), token]


@pytest.mark.parametrize("which", [0, 1])
def test_both_sides_prove_themselves(
    secret: bytes, verifier: RequestVerifier, clock: Clock, which: int
) -> None:
    clock.now += 5.0
    asked = SignedRequest(credentials(secret)[which], PATH, 1004.0)
    client = verifier.verify(asked.authorization, "GET", PATH)
    assert client is not None
    assert not client.late
    proof = client.proof(200, b"body")
    assert asked.proven(proof, 200, b"body") == 1005.0
    assert asked.proven(proof, 404, b"body") is None
    assert asked.proven(proof, 200, b"other") is None
    for forged in ("", "x", proof[:-1] + ("A" if proof[-1] != "A" else "B"), f"1{proof}"):
        assert asked.proven(forged, 200, b"body") is None


@pytest.mark.parametrize("which", [0, 1])
def test_what_is_asked_is_what_was_signed(
    secret: bytes, verifier: RequestVerifier, which: int
) -> None:
    asked = SignedRequest(credentials(secret)[which], PATH, 1000.0)
    assert verifier.verify(asked.authorization, "GET", "/api/v1/history") is None
    assert verifier.verify(asked.authorization, "HEAD", PATH) is None
    other = SignedRequest(credentials(new_secret())[which], PATH, 1000.0)
    assert verifier.verify(other.authorization, "GET", PATH) is None


def test_a_request_is_accepted_once(secret: bytes, verifier: RequestVerifier, clock: Clock) -> None:
    asked = SignedRequest(credentials(secret)[0], PATH, 1000.0).authorization
    assert verifier.verify(asked, "GET", PATH) is not None
    assert verifier.verify(asked, "GET", PATH) is None
    clock.now += WINDOW * 3
    late = verifier.verify(asked, "GET", PATH)
    assert late is not None
    assert late.late


def test_who_dialled_another_port_has_signed_for_that_one(
    secret: bytes, verifier: RequestVerifier
) -> None:
    bound = SignedRequest(credentials(secret, "127.0.0.1:9402")[0], PATH, 1000.0)
    assert verifier.verify(bound.authorization, "GET", PATH) is None


@pytest.mark.parametrize("asked_at", [1000.0 - 1.0, 1100.0 - WINDOW - 1.0, 1100.0 + WINDOW + 1.0])
def test_of_another_time_is_late_and_told_so(
    secret: bytes, verifier: RequestVerifier, clock: Clock, asked_at: float
) -> None:
    """What was signed before this server began it may have answered in an earlier life."""
    clock.now += 100.0 if asked_at != 999.0 else 0.5
    client = verifier.verify(
        SignedRequest(credentials(secret)[0], PATH, asked_at).authorization, "GET", PATH
    )
    assert client is not None
    assert client.late


def test_who_has_the_token_is_no_server_to_who_has_the_secret(secret: bytes) -> None:
    by_secret, by_token = credentials(secret)
    asked = SignedRequest(by_secret, PATH, 1000.0)
    nonce = asked.authorization.split(".")[1]
    from ray_sentinel.http.access import ProvenClient

    for made_by in (by_token, PageCredential("secret", token_of(secret).encode(), ADDRESS)):
        forged = ProvenClient(made_by, nonce, "1000000", False).proof(200, b"[]")
        assert asked.proven(forged, 200, b"[]") is None


@pytest.mark.parametrize(
    "authorization",
    ["", "RaySentinel", "RaySentinel ", "RaySentinel secret.a.1.b", "RaySentinel x" * 1000,
     "RaySentinel token." + "A" * 22 + "." + "9" * 16 + "." + "A" * 43,
     "RaySentinel secret." + "é" * 22 + ".1." + "A" * 43],
)  # fmt: skip
def test_what_is_no_signature(verifier: RequestVerifier, authorization: str) -> None:
    assert verifier.verify(authorization, "GET", PATH) is None


def test_the_link_the_token_and_the_cookie(secret: bytes) -> None:
    token = token_of(secret)
    assert re.fullmatch(r"[A-Za-z0-9_-]{43}", token)
    assert len({token, cookie_of(secret), secret.hex()}) == 3
    assert link_of("http://127.0.0.1:9401/", secret) == f"http://127.0.0.1:9401/?token={token}"
    assert link_of("", secret) == ""
    assert new_secret() != new_secret()
    assert len(new_secret()) == 32


def test_a_token_that_is_none_is_not_said() -> None:
    with pytest.raises(UsageError, match=r"^what is given is no token") as refused:
        PageCredential.of_token("hunter2", "what is given")
    assert "hunter2" not in str(refused.value)


def test_texts_that_are_not_ascii_differ_without_an_error() -> None:
    assert not equal("é\udcff", "x")
    assert equal("x", "x")
