"""The file of TLS and authentication: exporter-toolkit's own examples, and what is refused."""

from __future__ import annotations

import ssl
from pathlib import Path

import pytest

from ray_sentinel.errors import ConfigError
from ray_sentinel.http.web_config import WebConfig, read_web_config
from tests.support.certificates import Authority

HASH = "$2y$10$mDwo.lAisC94iLAyP81MCesa29IzH37oigHC/42V2pdJlUprsJPze"
"""Of "bob": an example of Prometheus' own documentation."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """With ``node.crt``, ``node.key``, ``ca.crt`` and ``token``."""
    folder = tmp_path_factory.mktemp("web")
    Authority(folder).issue("node", "127.0.0.1")
    (folder / "token").write_text("0123456789abcdef0123456789abcdef\n")
    (folder / "short").write_text("secret\n")
    return folder


def read(folder: Path, text: str) -> WebConfig:
    path = folder / "web.yml"
    path.write_text(text)
    return read_web_config(path)


TLS = "tls_server_config: {cert_file: node.crt, key_file: node.key"


def test_nothing_is_asked_for_by_an_empty_file(folder: Path) -> None:
    found = read(folder, "")
    assert (found.tls, found.authenticates, found.headers) == (None, False, ())


def test_all_that_the_format_has_and_this_server_can_do(folder: Path) -> None:
    found = read(
        folder,
        TLS + ", client_auth_type: RequireAndVerifyClientCert, client_ca_file: ca.crt, "
        "min_version: TLS13, max_version: TLS13, prefer_server_cipher_suites: false}\n"
        "http_server_config:\n  http2: false\n  headers:\n    X-Frame-Options: deny\n"
        "    Strict-Transport-Security: max-age=31536000\n"
        f"basic_auth_users:\n  bob: {HASH}\nbearer_token_file: token\n",
    )
    assert found.tls is not None
    assert found.tls.verify_mode == ssl.CERT_REQUIRED
    assert found.tls.minimum_version == ssl.TLSVersion.TLSv1_3
    assert not found.tls.options & ssl.OP_CIPHER_SERVER_PREFERENCE
    assert found.users == {"bob": HASH}
    assert found.token == "0123456789abcdef0123456789abcdef"
    assert dict(found.headers)["X-Frame-Options"] == "deny"
    assert [path.name for path in found.files] == [
        "web.yml",
        "node.crt",
        "node.key",
        "ca.crt",
        "token",
    ]


def test_tls_begins_with_1_2(folder: Path) -> None:
    found = read(folder, TLS + "}")
    assert found.tls is not None
    assert found.tls.minimum_version == ssl.TLSVersion.TLSv1_2
    assert found.tls.verify_mode == ssl.CERT_NONE


REFUSED = {
    "tls_server_confg: {}": "tls_server_confg: there is no such key",
    TLS + ", cert_fil: x}": "tls_server_config.cert_fil: there is no such key",
    TLS + ", cert_file: 7}": "tls_server_config.cert_file: expected `str`",
    TLS + ", cipher_suites: [TLS_AES_128_GCM_SHA256]}": "tls_server_config.cipher_suites is a key",
    TLS + ", client_allowed_sans: [a]}": "tls_server_config.client_allowed_sans is a key",
    "rate_limit: {burst: 5}": "rate_limit is a key of exporter-toolkit that is not supported",
    TLS + ", client_auth_type: RequireAnyClientCert}": "RequireAnyClientCert is not supported here",
    TLS + ", client_auth_type: Sometimes}": "client_auth_type: 'Sometimes' is none of",
    TLS + ", client_auth_type: RequireAndVerifyClientCert}": "client_ca_file and client_auth_type",
    TLS + ", client_ca_file: ca.crt}": "client_ca_file and client_auth_type need each other",
    TLS + ", min_version: SSL30}": "tls_server_config.min_version: 'SSL30' is none of TLS10",
    TLS + ", min_version: TLS13, max_version: TLS12}": "min_version TLS13 is above max_version",
    "tls_server_config: {cert_file: node.crt}": "tls_server_config.key_file is missing",
    "tls_server_config: {cert_file: no.crt, key_file: node.key}": "no.crt cannot be read",
    "tls_server_config: {cert_file: token, key_file: node.key}": "cannot be used",
    "tls_server_config: {cert_file: ca.crt, key_file: node.key}": "cannot be used",
    "basic_auth_users: {bob: secret}": "basic_auth_users.bob is no bcrypt hash",
    "basic_auth_users: [bob]": "basic_auth_users: expected `object`",
    f"basic_auth_users: {{'': {HASH}}}": "is no name of a user",
    f"basic_auth_users: {{bob: {HASH.replace('$10$', '$30$')}}}": "a cost of 30",
    "bearer_token_file: nowhere": "nowhere cannot be read",
    "bearer_token_file: short": "short must hold one token of at least 16 characters",
    "http_server_config: {headers: {X-Powered-By: us}}": "headers.X-Powered-By: is none of",
    "http_server_config: {headers: {X-Frame-Options: never}}": "headers.X-Frame-Options",
    'http_server_config: {headers: {X-XSS-Protection: "1\\r\\nX: y"}}': "no header may have",
    "- a list": "must be a mapping",
    "a: [": "is no YAML",
    "!!python/object/apply:os.system [id]": "is no YAML",
}


@pytest.mark.parametrize("text", REFUSED, ids=range(len(REFUSED)))
def test_what_is_refused_is_named(folder: Path, text: str) -> None:
    with pytest.raises(ConfigError) as failure:
        read(folder, text)
    assert REFUSED[text] in str(failure.value)
    assert str(folder / "web.yml") in str(failure.value)


def test_a_key_with_a_password_is_refused_and_asks_nobody(folder: Path) -> None:
    import subprocess

    from tests.support.parts import require

    command = [require("openssl"), "ec", "-aes128", "-passout", "pass:x", "-in"]
    command += [str(folder / "node.key"), "-out", str(folder / "locked.key")]
    subprocess.run(command, check=True, capture_output=True, timeout=60)
    with pytest.raises(ConfigError, match="cannot be used: the key is encrypted"):
        read(folder, "tls_server_config: {cert_file: node.crt, key_file: locked.key}")


def test_a_file_that_others_can_write_is_refused(folder: Path) -> None:
    path = folder / "open.yml"
    path.write_text("")
    path.chmod(0o666)
    with pytest.raises(ConfigError, match=r"open\.yml"):
        read_web_config(path)
