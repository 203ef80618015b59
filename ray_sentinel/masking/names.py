"""Which names hold secrets: ``HF_TOKEN`` and ``dbPassword`` do, ``pad_token`` does not.

A name is split into its words; the last one says what the value is, those before it whose. Training
uses "token" and "key" also for things that are not secret: some words before them show that.
"""

from __future__ import annotations

from enum import IntEnum
from functools import lru_cache

from ray_sentinel import regex as re


def word_set(text: str) -> frozenset[str]:
    """A set of words, from one text of them."""
    return frozenset(text.split())


class Strength(IntEnum):
    """How sure a name makes it that its value is a secret."""

    NONE = 0
    RANDOM = 1
    """Only a value that looks random is secret: ``ENCRYPTION_KEY``, ``auth``."""
    LIKELY = 2
    """Any value is secret, except what training writes beside that word: ``token``."""
    SURE = 3
    """Any value is secret: ``password``, ``HF_TOKEN``."""


_WORDS = re.compile(r"[A-Z]+[a-z]*|[a-z]+|[0-9]+")
_PASSWORDS = ("password", "passwd", "passphrase", "passcode", "passwort", "userpass", "psswd")
_GLUED = word_set(
    "pwd apikey apitoken apisecret authtoken authkey accesstoken accesskey accesskeyid "
    "accountkey refreshtoken bearertoken sessiontoken securitytoken secretkey secretaccesskey "
    "privatekey clientsecret appsecret requirepass sharedsecret sharedaccesskey "
    "sharedaccesssignature masterkey signingkey storagekey subscriptionkey authorization cookie "
    "cookies setcookie hftoken usertoken jwt bearer passwords"
)
_SUFFIXES = word_set(
    "value val str string raw text plain plaintext base64 b64 encoded env var prod production "
    "dev staging test base old new current primary secondary backup default literal override"
)
_KEY_OWNERS = word_set(
    "api access secret private auth account signing encryption decryption crypto master "
    "subscription license licence shared wandb comet neptune clearml openai anthropic azure aws "
    "hmac aes rsa jwt app application admin registration"
)
_NO_SECRET_KEY = word_set(
    "primary foreign public cache state sort partition group store object map hash config row "
    "join index block dict query padding missing unexpected extra param metric feature label "
    "sample data input output image text shard lookup kv v column field weight layer bucket s3 "
    "file dataset ssh_host host log event message msg this that no any each per first last"
)
_TOKEN_OWNERS = word_set(
    "access auth api bearer refresh hf hub huggingface github gh gitlab git slack bot wandb "
    "mlflow neptune clearml comet databricks service session security secret private personal "
    "oauth oauth2 jwt csrf xsrf sas vault npm pypi docker registry aws azure gcp google openai "
    "anthropic admin user account login x deploy ci runner kube k8s cluster dashboard jupyter "
    "client app device telegram discord web identity id notify webhook pat ray anyscale dagshub "
    "kaggle modal"
)
_NO_SECRET_TOKEN = word_set(
    "pad eos bos unk sep cls mask begin end special next last image video audio stop start "
    "first prev previous input output per max num min n total new draft additional decoder "
    "forced word sub prompt generated im assistant vocab cur current target predicted sampled "
    "tool added text speech bad language lang timestamp suppress each unexpected fake boi eoi "
    "eot bot_id placeholder newline space blank split separator padding completion reasoning "
    "think thinking every single seq sequence batch label ignore expected eod fim prefix suffix "
    "middle turn sentinel rank step invalid_input continuation patch visual unknown hidden "
    "logit the a an this that of"
)
_PASS_OWNERS = word_set(
    "db database become bind vault user smtp mysql redis admin root sudo http https proxy ftp "
    "ssh my login pg postgres key store keystore truststore mongo ldap imap rabbitmq mq wifi "
    "mail email basic auth"
)
_SESSIONS = word_set(
    "sessionid jsessionid phpsessid sid csrf xsrf csrftoken xsrftoken sessid connectsid"
)


def words_of(name: str) -> list[str]:
    """The words of a name in lower case.

    >>> words_of("dbPassword"), words_of("X_API_KEY"), words_of("APIKey")
    (['db', 'password'], ['x', 'api', 'key'], ['api', 'key'])
    """
    parts = []
    for word in _WORDS.findall(name):
        capitals = len(word) - len(word.lstrip("ABCDEFGHIJKLMNOPQRSTUVWXYZ"))
        if 1 < capitals < len(word):
            parts.append(word[: capitals - 1].lower())
            word = word[capitals - 1 :]
        parts.append(word.lower())
    return parts


@lru_cache(4096)
def strength(name: str) -> Strength:
    """How sure a value of that name is a secret.

    >>> strength("HF_TOKEN").name, strength("pad_token").name, strength("tokenizer").name
    ('SURE', 'NONE', 'NONE')
    """
    parts = words_of(name)
    while len(parts) > 1 and (parts[-1] in _SUFFIXES or parts[-1].isdigit()):
        parts.pop()
    if not parts:
        return Strength.NONE
    if parts[-3:] == ["access", "key", "id"]:
        return Strength.SURE
    if parts[-1] in ("data", "id") and parts[-2:-1] == ["key"] and len(parts) > 2:
        return Strength.SURE if parts[-1] == "data" else Strength.RANDOM
    if parts[-2:] in (["certificate", "data"], ["authority", "data"]):
        return Strength.SURE
    if parts[-2:] in (["webhook", "url"], ["webhook", "uri"], ["hook", "url"]):
        return Strength.LIKELY
    return _of_head(parts[-1], parts[:-1], upper=name.isupper())


def _of_head(head: str, owners: list[str], *, upper: bool) -> Strength:
    if head.endswith(_PASSWORDS) or head in _GLUED or "".join(owners[-1:]) + head in _GLUED:
        return Strength.SURE
    if head.endswith(("pwd", "apikey")):
        return Strength.SURE
    if head in ("secret", "secrets") or (head == "data" and owners[-1:] == ["string"]):
        plural = head != "secret"
        return Strength.RANDOM if plural else Strength.SURE if owners else Strength.LIKELY
    if head == "token":
        return _token(owners, upper=upper)
    if head == "tokens":
        return Strength.RANDOM if _TOKEN_OWNERS & set(owners[-1:]) else Strength.NONE
    if head in ("key", "keys"):
        return _key(owners)
    if head in ("pass", "pw"):
        return Strength.SURE if _PASS_OWNERS & set(owners[-1:]) else Strength.RANDOM
    if head in ("credential", "credentials", "creds", "auth", "sig", "signature", "hmac", "pat"):
        return Strength.RANDOM
    if head in ("pin", "otp", "totp", "webhook", "apprise"):
        return Strength.LIKELY
    return Strength.RANDOM if head in _SESSIONS else Strength.NONE


def _token(owners: list[str], *, upper: bool) -> Strength:
    if not owners:
        return Strength.LIKELY
    if _TOKEN_OWNERS & set(owners):
        return Strength.SURE
    if owners[-1] in _NO_SECRET_TOKEN or owners[0] in ("num", "max", "min"):
        return Strength.NONE
    return Strength.SURE if upper else Strength.LIKELY


def _key(owners: list[str]) -> Strength:
    if not owners or owners[-1] in _NO_SECRET_KEY:
        return Strength.NONE
    return Strength.SURE if owners[-1] in _KEY_OWNERS else Strength.RANDOM
