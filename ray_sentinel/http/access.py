"""Who may ask the coordinator's page, and how client and server prove who they are.

Any user of a node can listen on a port of loopback and answer there, and can ask whoever listens.
So each deployment has a secret, 32 random bytes, from which all else is derived by HMAC-SHA256:

* the *token* is in the page's link. Whoever holds it may read.
* the *cookie* is what a browser keeps in its place. Whoever holds it may read.

Programs of ours never send either. They sign what they ask, and check a signature of the answer
before they believe a word of it, error statuses included:

``Authorization: RaySentinel KIND.NONCE.TIME.SIGNATURE``
    over (kind, address, nonce, time, method, path). The nonce has 16 random bytes and is accepted
    once; the time, in Unix milliseconds, must be within ``WINDOW`` of the server's.
``Ray-Sentinel-Proof: TIME.SIGNATURE``
    over (nonce, the server's time, status, SHA-256 of the body).

What signs depends on what a client has. One that read the page's file has the *secret*, and signs
the address that it dialled with it: whoever holds another port and passes the request on to the
real one gets nothing. One that has the token came through a tunnel and cannot know the server's
address: it leaves that out. The keys derived from the token differ from those derived from the
secret: whoever has only the token cannot pretend to be the server to a client that has the secret.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import secrets
import threading
import time
from collections.abc import Callable
from typing import Literal

import msgspec

from ray_sentinel import regex as re
from ray_sentinel.errors import UsageError

SECRET_BYTES = 32
NONCE_BYTES = 16
WINDOW = 60.0
"""Seconds by which the time of a request may differ from the server's."""
MOST_NONCES = 1 << 16
"""Most nonces that are remembered; beyond that, the oldest is forgotten. Only clients that may read
the page anyway can bring in new ones."""
SCHEME = "RaySentinel"
PROOF_HEADER = "Ray-Sentinel-Proof"
REALM = 'realm="ray_sentinel"'
"""The mark by which a page that asks for a token is recognised."""

Kind = Literal["secret", "token"]

_TOKEN = re.compile(r"[A-Za-z0-9_-]{43}")
_SIGNED = re.compile(
    r"(?P<kind>secret|token)\.(?P<nonce>[A-Za-z0-9_-]{22})\.(?P<time>[0-9]{1,15})"
    r"\.(?P<signature>[A-Za-z0-9_-]{43})"
)
_PROOF = re.compile(r"(?P<time>[0-9]{1,15})\.(?P<signature>[A-Za-z0-9_-]{43})")


def new_secret() -> bytes:
    """A secret for a new deployment."""
    return secrets.token_bytes(SECRET_BYTES)


def token_of(secret: bytes) -> str:
    """The token in the page's link: 43 letters, digits, ``-`` and ``_``."""
    return _text(_derived(secret, "token"))


def cookie_of(secret: bytes) -> str:
    """The cookie that a browser receives in exchange for the token."""
    return _text(_derived(secret, "cookie"))


def link_of(url: str, secret: bytes) -> str:
    """The link by which a browser gets access; empty if there is no page."""
    return f"{url.rstrip('/')}/?token={token_of(secret)}" if url and secret else ""


def equal(given: str, wanted: str) -> bool:
    """Whether two texts are equal, in a time that does not reveal how much of them is."""
    return hmac.compare_digest(given.encode("utf-8", "replace"), wanted.encode())


class PageCredential(msgspec.Struct, frozen=True):
    """The key that a client signs with: the secret and the address that it dials, or the token
    alone."""

    kind: Kind
    key: bytes
    address: str = ""
    """The page's address as ``HOST:PORT``; empty for the token."""

    @classmethod
    def of_secret(cls, secret: bytes, address: str) -> PageCredential:
        """The credential of a client that has read the page's file."""
        return cls("secret", secret, address)

    @classmethod
    def of_token(cls, token: str, source: str) -> PageCredential:
        """The credential of a client that was given the link. Raises UsageError for an invalid
        token; the message names its ``source``."""
        if not _TOKEN.fullmatch(token):
            raise UsageError(
                f"{source} is no token of a page: `ray-sentinel status --link` prints the link "
                "that holds it"
            )
        return cls("token", token.encode())


class SignedRequest:
    """One GET of a client, and what it needs to verify the server's answer."""

    def __init__(self, credential: PageCredential, path: str, when: float) -> None:
        """``when`` is the server's time in Unix seconds, as far as it is known."""
        self._credential = credential
        self._nonce = _text(secrets.token_bytes(NONCE_BYTES))
        self._time = str(int(when * 1000))
        signed = _request_signature(credential, self._nonce, self._time, "GET", path)
        self.authorization = (
            f"{SCHEME} {credential.kind}.{self._nonce}.{self._time}.{_text(signed)}"
        )

    def proven(self, proof: str, status: int, body: bytes) -> float | None:
        """The server's time in Unix seconds if the answer is the server's own; otherwise None."""
        found = _PROOF.fullmatch(proof)
        if found is None:
            return None
        wanted = _answer_signature(self._credential, self._nonce, found["time"], status, body)
        return int(found["time"]) / 1000 if equal(found["signature"], _text(wanted)) else None


class ProvenClient(msgspec.Struct, frozen=True):
    """A request with a valid signature; ``late`` if its time differs too much from the server's."""

    credential: PageCredential
    nonce: str
    time: str
    late: bool

    def proof(self, status: int, body: bytes) -> str:
        """The header's value that proves the answer to be the server's."""
        signed = _answer_signature(self.credential, self.nonce, self.time, status, body)
        return f"{self.time}.{_text(signed)}"


class RequestVerifier:
    """The server's side, for one address. It rejects requests that it has seen before, and those
    signed before it started, because it may have seen and forgotten them. Thread-safe."""

    def __init__(
        self, secret: bytes, address: str, monotonic: Callable[[], float] = time.monotonic
    ) -> None:
        """``address`` is ``HOST:PORT`` that the server listens on."""
        self._credentials = {
            "secret": PageCredential.of_secret(secret, address),
            "token": PageCredential.of_token(token_of(secret), "the secret's own"),
        }
        self._monotonic = monotonic
        # A clock that is set back would make seen requests fresh again: ours is never set.
        self._began, self._began_at = time.time(), monotonic()
        self._seen: dict[str, float] = {}
        self._lock = threading.Lock()

    def verify(self, authorization: str, method: str, path: str) -> ProvenClient | None:
        """Who sent the request; None if it proves nothing, or was received before."""
        found = _SIGNED.fullmatch(authorization.removeprefix(f"{SCHEME} "))
        if found is None:
            return None
        credential = self._credentials[found["kind"]]
        wanted = _request_signature(credential, found["nonce"], found["time"], method, path)
        if not equal(found["signature"], _text(wanted)):
            return None
        now = self._began + self._monotonic() - self._began_at
        asked = int(found["time"]) / 1000
        late = not max(now - WINDOW, self._began - 0.001) <= asked <= now + WINDOW
        if not late and not self._first_time(found["nonce"], now):
            return None
        return ProvenClient(credential, found["nonce"], str(int(now * 1000)), late)

    def _first_time(self, nonce: str, now: float) -> bool:
        with self._lock:
            while self._seen:
                oldest = next(iter(self._seen))
                if self._seen[oldest] > now and len(self._seen) < MOST_NONCES:
                    break
                del self._seen[oldest]
            if nonce in self._seen:
                return False
            self._seen[nonce] = now + 2 * WINDOW
            return True


def _request_signature(
    credential: PageCredential, nonce: str, when: str, method: str, path: str
) -> bytes:
    fields = (credential.kind, credential.address, nonce, when, method, path)
    return _signature(_derived(credential.key, "client"), *(field.encode() for field in fields))


def _answer_signature(
    credential: PageCredential, nonce: str, when: str, status: int, body: bytes
) -> bytes:
    fields = (nonce.encode(), when.encode(), str(status).encode(), hashlib.sha256(body).digest())
    return _signature(_derived(credential.key, "server"), *fields)


def _signature(key: bytes, *fields: bytes) -> bytes:
    """The signature of the fields with their lengths: no two lists of fields look the same."""
    signed = hmac.new(key, digestmod=hashlib.sha256)
    for field in fields:
        signed.update(len(field).to_bytes(8, "big") + field)
    return signed.digest()


def _derived(key: bytes, purpose: str) -> bytes:
    return hmac.digest(key, f"ray_sentinel page 1 {purpose}".encode(), "sha256")


def _text(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).decode().rstrip("=")
