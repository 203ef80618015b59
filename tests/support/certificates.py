"""Certificates made by a real ``openssl``, for tests of TLS."""

from __future__ import annotations

import ssl
import subprocess
from pathlib import Path

import msgspec

from tests.support.parts import require


class KeyPair(msgspec.Struct, frozen=True):
    """PEM files of a certificate and its key."""

    cert: Path
    key: Path


class Authority:
    """Issues certificates; its own are ``ca.crt`` and ``ca.key`` in ``folder``."""

    def __init__(self, folder: Path, name: str = "Test authority") -> None:
        self.folder = folder
        self.cert, self._key = folder / "ca.crt", folder / "ca.key"
        folder.mkdir(parents=True, exist_ok=True)
        _openssl(
            *("req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1"),
            *("-nodes", "-days", "2", "-subj", f"/CN={name}"),
            *("-keyout", self._key, "-out", self.cert),
        )

    def issue(self, name: str, *addresses: str) -> KeyPair:
        """``NAME.crt`` and ``NAME.key``, for a server at ``addresses`` (IPs) or a client."""
        pair = KeyPair(self.folder / f"{name}.crt", self.folder / f"{name}.key")
        names = ",".join([f"DNS:{name}", *(f"IP:{address}" for address in addresses)])
        _openssl(
            *("req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1"),
            *("-nodes", "-days", "2", "-subj", f"/CN={name}", "-addext", f"subjectAltName={names}"),
            *("-addext", "basicConstraints=critical,CA:FALSE"),
            *("-CA", self.cert, "-CAkey", self._key, "-keyout", pair.key, "-out", pair.cert),
        )
        pair.key.chmod(0o600)
        return pair

    def trusted(self, client: KeyPair | None = None) -> ssl.SSLContext:
        """What a client of this authority's servers connects with."""
        context = ssl.create_default_context(cafile=str(self.cert))
        if client is not None:
            context.load_cert_chain(client.cert, client.key)
        return context


def server_context(pair: KeyPair) -> ssl.SSLContext:
    """What a server with this certificate accepts with."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(pair.cert, pair.key)
    return context


def _openssl(*arguments: str | Path) -> None:
    subprocess.run(
        [require("openssl"), *map(str, arguments)], check=True, capture_output=True, timeout=60
    )
