"""TLS and authentication of a server, configured as Prometheus' own exporters are.

The file has the format of exporter-toolkit
(https://github.com/prometheus/exporter-toolkit/blob/master/docs/web-configuration.md), and one key
of ours, ``bearer_token_file``: a file with a token that is let in too. Paths in it are relative to
it. What the format knows and this server cannot do is refused, like any unknown key: nothing that
was asked for is left out in silence.

File, certificates and token are looked at once a second on a thread of their own; what cannot be
used is reported, and the last usable settings stay in use.
"""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from ray_sentinel import regex as re
from ray_sentinel.errors import ConfigError
from ray_sentinel.trusted_path import UntrustedPathError, read_trusted

MOST_BYTES = 1 << 20
"""Most bytes of each file; a longer one is refused."""
MOST_COST = 14
"""Highest cost of a bcrypt hash that is accepted: a check takes about a second, and each further
step doubles that."""
LEAST_TOKEN = 16
"""Fewest characters of a token."""

HASH = re.compile(r"\$2[aby]\$(\d\d)\$[./A-Za-z0-9]{53}")

_HEADERS = {
    "Content-Security-Policy": None,
    "Strict-Transport-Security": None,
    "X-Content-Type-Options": ("nosniff",),
    "X-Frame-Options": ("deny", "sameorigin"),
    "X-XSS-Protection": None,
}
"""Headers that the format knows, each with its values if the format limits them."""
_VERSIONS = {
    "TLS10": ssl.TLSVersion.TLSv1,
    "TLS11": ssl.TLSVersion.TLSv1_1,
    "TLS12": ssl.TLSVersion.TLSv1_2,
    "TLS13": ssl.TLSVersion.TLSv1_3,
}
_CLIENT_AUTH = {
    "": ssl.CERT_NONE,
    "NoClientCert": ssl.CERT_NONE,
    "VerifyClientCertIfGiven": ssl.CERT_OPTIONAL,
    "RequireAndVerifyClientCert": ssl.CERT_REQUIRED,
}
_NO_CLIENT_AUTH = ("RequestClientCert", "RequireAnyClientCert")
_UNSUPPORTED = {
    "": ("rate_limit",),
    "tls_server_config": (
        *("cert", "key", "client_ca", "client_allowed_sans", "cipher_suites", "curve_preferences"),
    ),
    "http_server_config": (),
}
"""Keys of the format, by section, that this server does not support."""


class TlsServerConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """``tls_server_config``."""

    cert_file: str = ""
    key_file: str = ""
    client_auth_type: str = ""
    client_ca_file: str = ""
    min_version: str = "TLS12"
    max_version: str = "TLS13"
    prefer_server_cipher_suites: bool = True


class HttpServerConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """``http_server_config``. ``http2`` may have either value: clients agree on HTTP/1.1."""

    http2: bool = True
    headers: dict[str, str] = {}


class WebConfigFile(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The whole file."""

    tls_server_config: TlsServerConfig | None = None
    http_server_config: HttpServerConfig = HttpServerConfig()
    basic_auth_users: dict[str, str] = {}
    bearer_token_file: str = ""


class WebConfig(msgspec.Struct, frozen=True, kw_only=True):
    """The checked settings that a server needs."""

    tls: ssl.SSLContext | None = None
    users: Mapping[str, str] = {}
    """The bcrypt hash of each user's password."""
    token: str = ""
    headers: tuple[tuple[str, str], ...] = ()
    files: tuple[Path, ...] = ()
    """All files that were read: a change of one of them is a change of these settings."""

    @property
    def authenticates(self) -> bool:
        """Whether it requires credentials; otherwise it admits everybody, or everybody with a
        certificate."""
        return bool(self.users or self.token)


def read_web_config(path: Path) -> WebConfig:
    """The file and the files that it names. Raises ConfigError, naming file and key."""
    data = _read(path, "")
    plain = _yaml(path, data)
    _refuse_unsupported(path, plain)
    try:
        file = msgspec.convert(plain, WebConfigFile)
    except msgspec.ValidationError as error:
        raise ConfigError(f"{path}: {_plainly(error)}") from None
    names = [path]
    tls, token = None, ""
    if file.tls_server_config is not None:
        tls = _context(path, file.tls_server_config, names)
    if file.bearer_token_file:
        token = _token(path, file.bearer_token_file, names)
    _check_users(path, file.basic_auth_users)
    return WebConfig(
        tls=tls,
        users=file.basic_auth_users,
        token=token,
        headers=_headers(path, file.http_server_config.headers),
        files=tuple(names),
    )


def _read(path: Path, key: str) -> bytes:
    where = f"{key}: {path}" if key else str(path)
    try:
        return read_trusted(path, most=MOST_BYTES).data
    except UntrustedPathError as error:
        raise ConfigError(f"{where}: {error}") from None
    except OSError as error:
        raise ConfigError(f"{where} cannot be read: {error.strerror or error}") from None


def _yaml(path: Path, data: bytes) -> dict[str, Any]:
    import yaml

    try:
        plain = yaml.safe_load(data)
    except (yaml.YAMLError, UnicodeDecodeError, RecursionError, ValueError) as error:
        raise ConfigError(f"{path} is no YAML: {' '.join(str(error).split())}") from None
    if plain is None:
        return {}
    if not isinstance(plain, dict):
        raise ConfigError(f"{path} must be a mapping, such as 'tls_server_config: ...'")
    return plain


def _refuse_unsupported(path: Path, plain: Mapping[str, Any]) -> None:
    for section, keys in _UNSUPPORTED.items():
        table: Any = plain.get(section) if section else plain
        for key in keys:
            if isinstance(table, Mapping) and key in table:
                name = f"{section}.{key}" if section else key
                raise ConfigError(
                    f"{path}: {name} is a key of exporter-toolkit that is not supported here: "
                    "remove it"
                )


def _plainly(error: msgspec.ValidationError) -> str:
    """msgspec's words with the key in front: "tls_server_config.cert_fil is no key of it"."""
    text = str(error)
    what, _, where = text.partition(" - at `$.")
    prefix = where.rstrip("`")
    if unknown := re.search(r"unknown field `([^`]*)`", what):
        name = f"{prefix}.{unknown[1]}" if prefix else unknown[1]
        return f"{name}: there is no such key"
    return f"{prefix}: {what[:1].lower()}{what[1:]}" if prefix else what


def _context(path: Path, tls: TlsServerConfig, names: list[Path]) -> ssl.SSLContext:
    def fail(key: str, why: str) -> ConfigError:
        return ConfigError(f"{path}: tls_server_config.{key}{why}")

    for key in ("cert_file", "key_file"):
        if not getattr(tls, key):
            raise fail(key, " is missing")
    if tls.client_auth_type in _NO_CLIENT_AUTH:
        raise fail("client_auth_type", f": {tls.client_auth_type} is not supported here: ask for "
                   "RequireAndVerifyClientCert")  # fmt: skip
    if tls.client_auth_type not in _CLIENT_AUTH:
        raise fail("client_auth_type", f": {tls.client_auth_type!r} is none of "
                   f"{', '.join(filter(None, _CLIENT_AUTH))}")  # fmt: skip
    for key in ("min_version", "max_version"):
        if getattr(tls, key) not in _VERSIONS:
            raise fail(key, f": {getattr(tls, key)!r} is none of {', '.join(_VERSIONS)}")
    verify = _CLIENT_AUTH[tls.client_auth_type]
    if bool(tls.client_ca_file) != (verify != ssl.CERT_NONE):
        raise fail("client_ca_file", " and client_auth_type need each other")
    least, most = _VERSIONS[tls.min_version], _VERSIONS[tls.max_version]
    if least > most:
        raise fail("min_version", f" {tls.min_version} is above max_version {tls.max_version}")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version, context.maximum_version = least, most
    if not tls.prefer_server_cipher_suites:
        context.options &= ~ssl.OP_CIPHER_SERVER_PREFERENCE
    context.set_alpn_protocols(["http/1.1"])
    _load(path, tls, context, names)
    context.verify_mode = verify
    return context


def _load(path: Path, tls: TlsServerConfig, context: ssl.SSLContext, names: list[Path]) -> None:
    cert, key = path.parent / tls.cert_file, path.parent / tls.key_file
    for name, file in (("cert_file", cert), ("key_file", key)):
        _read(file, f"{path}: tls_server_config.{name}")
    names += [cert, key]
    try:
        # An encrypted key would have OpenSSL ask for its password on the terminal.
        context.load_cert_chain(cert, key, password=_no_password)
    except (OSError, ValueError) as error:
        raise ConfigError(
            f"{path}: tls_server_config: {cert} and {key} cannot be used: {error}"
        ) from None
    if tls.client_ca_file:
        authority = path.parent / tls.client_ca_file
        data = _read(authority, f"{path}: tls_server_config.client_ca_file")
        names.append(authority)
        try:
            context.load_verify_locations(cadata=data.decode())
        except (OSError, ValueError) as error:
            raise ConfigError(
                f"{path}: tls_server_config.client_ca_file: {authority} holds no certificate: "
                f"{error}"
            ) from None


def _no_password() -> str:
    raise ValueError("the key is encrypted, and there is nobody to ask for its password")


def _token(path: Path, file: str, names: list[Path]) -> str:
    place = path.parent / file
    token = _read(place, f"{path}: bearer_token_file").decode("utf-8", "replace").strip()
    names.append(place)
    if len(token) < LEAST_TOKEN or not token.isascii() or not token.isprintable() or " " in token:
        raise ConfigError(
            f"{path}: bearer_token_file: {place} must hold one token of at least {LEAST_TOKEN} "
            "characters: `openssl rand -hex 32` makes one"
        )
    return token


def _check_users(path: Path, users: Mapping[str, str]) -> None:
    for name, hashed in users.items():
        found = HASH.fullmatch(hashed)
        if not name or ":" in name:
            raise ConfigError(f"{path}: basic_auth_users: {name!r} is no name of a user")
        if found is None:
            raise ConfigError(
                f"{path}: basic_auth_users.{name} is no bcrypt hash: `htpasswd -nBC 10 {name}` "
                "makes one"
            )
        if not 4 <= int(found[1]) <= MOST_COST:
            raise ConfigError(
                f"{path}: basic_auth_users.{name}: a cost of {found[1]} is not between 4 and "
                f"{MOST_COST}: `htpasswd -nBC 10 {name}` makes one that is"
            )


def _headers(path: Path, headers: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
    for name, value in headers.items():
        where = f"{path}: http_server_config.headers.{name}"
        if name not in _HEADERS:
            raise ConfigError(f"{where}: is none of {', '.join(_HEADERS)}")
        allowed = _HEADERS[name]
        if allowed is not None and value.lower() not in allowed:
            raise ConfigError(f"{where}: {value!r} is none of {', '.join(allowed)}")
        if not value.isascii() or not value.isprintable():
            raise ConfigError(f"{where}: has characters that no header may have")
    return tuple(headers.items())
