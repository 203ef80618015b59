"""Secrets in text, masked before the text leaves the node that it was read on.

    mask('login(token="hf_...")')                      # 'login(token="***")'
    mask_argv(["train.py", "--token", "hf_..."])       # ["train.py", "--token", "***"]
    mask_record(snapshot)                              # every text in a record

Three readers find them: ``formats`` by their own form, ``fields`` by the name beside them, and
``programs`` by the command that takes them. What any of them finds is masked wherever it occurs
again in the same text. Pure; the time is linear in the text's length.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from functools import cache, lru_cache
from operator import is_
from typing import Any, TypeVar, get_args

import msgspec

from ray_sentinel import regex as re
from ray_sentinel.masking import formats, programs
from ray_sentinel.masking.field import SHORT_FLAGS
from ray_sentinel.masking.fields import fields
from ray_sentinel.masking.formats import Span, looks_random, lower_case
from ray_sentinel.masking.names import Strength, strength, word_set

__all__ = ["MASK", "mask", "mask_argv", "mask_bytes", "mask_record", "mask_tail"]

MASK = "***"
REPEATED = 8
"""Least number of characters of a secret that is masked wherever else the text contains it."""
_MOST_REPEATED = 256
_ROUNDS = 4
_QUERY_SECRETS = word_set(
    "sig signature key token code x-amz-signature x-amz-credential x-amz-security-token x-goog- "
    "signature x-goog-credential awsaccesskeyid access_token api_key apikey auth authorization "
    "password passwd pwd pass secret client_secret sid session sessionid session_id refresh_token "
    "id_token jwt sas hmac credential credentials policy key-pair-id private_token state_token "
    "assertion samlresponse"
)
_HINTS = (
    *word_set(
        "pass pwd token secret key cred auth cookie sess sig hook bearer :// jwt pin otp pat hmac "
        "csrf xsrf login sid pw certificate :aa stdin stringdata"
    ),
    "basic ",
    "private key",
    "identified",
    *programs.PROGRAMS,
)
"""Words of which, in lower case, every text contains one if it has a secret that is not recognised
by its form."""
_FORMS = tuple(formats.TOKENS)
_NO_TEXT = (int, float, type(None))
_NUMBERS = (*_NO_TEXT, bool)
_LONG_WORD = re.compile(r"[A-Za-z0-9+/]{40}")
T = TypeVar("T")


def mask(text: str) -> str:
    """``text`` with every secret that is recognised replaced by ``***``.

    >>> mask("export HF_TOKEN=hf_abcdefghijklmnopqrstuv")
    'export HF_TOKEN=***'
    """
    for _ in range(_ROUNDS):
        lower = lower_case(text)
        if not _may_hold(text, lower):
            return text
        masked = _replaced(text, _found(text, lower))
        if masked == text:
            return text
        text = masked
    return text


def _may_hold(text: str, lower: str) -> bool:
    """Whether the text may hold a secret; a quick test that settles most lines."""
    return (
        any(hint in lower for hint in _HINTS)
        or any(form in text for form in _FORMS)
        or (len(text) > 80 and _LONG_WORD.search(text) is not None)
    )


def mask_tail(text: str, before: str = "") -> str:
    """The end of a longer text, masked; ``before`` is the known part of the text before it.

    If nothing is known, the first line may begin inside a secret: anything in it that looks random
    is removed.
    """
    if before:
        whole = before + text
        return mask(_replaced(whole, _found(whole, lower_case(whole)), start=len(before)))
    first, newline, rest = text.partition("\n")
    spans = [found.span() for found in _LONG.finditer(first) if looks_random(found.group(), 16)]
    return mask(_replaced(first, spans) + newline + rest)


_LONG = re.compile(r"[A-Za-z0-9+/=_.~%-]{16,}")


def mask_bytes(data: bytes) -> bytes:
    """``mask`` for UTF-8 in bytes; other bytes stay unchanged."""
    text = data.decode("utf-8", "surrogateescape")
    masked = mask(text)
    return data if masked is text else masked.encode("utf-8", "surrogateescape")


def mask_argv(argv: Sequence[str]) -> list[str]:
    """A command line, masked word by word: a value is a word of its own, whatever is in it.

    >>> mask_argv(["train.py", "--hf-token", "my own words", "--lr", "3"])
    ['train.py', '--hf-token', '***', '--lr', '3']
    """
    words = list(argv)
    secrets: set[str] = set()
    for index, word in enumerate(words):
        name, equals, value = word.partition("=")
        sure = (
            strength(name.lstrip("-+")) is Strength.SURE or name.lstrip("-").lower() in SHORT_FLAGS
        )
        if equals and sure and _NAME.fullmatch(name):
            if value and mask(word) != word:
                secrets.add(value)
                words[index] = f"{name}={MASK}"
        elif not equals and word.startswith("-") and index + 1 < len(words):
            following = words[index + 1]
            if (
                sure
                and not following.startswith("-")
                and mask(f"{word} {following!r}") != (f"{word} {following!r}")
            ):
                secrets.add(following)
                words[index + 1] = MASK
    repeated = [secret for secret in secrets if len(secret) >= REPEATED]
    joined = "\0".join(words)
    for _ in range(_ROUNDS):
        spans = _found(joined, lower_case(joined)) + _of_programs(joined)
        masked = _replaced(joined, _word_by_word(joined, spans), repeated)
        if masked == joined:
            break
        joined = masked
    return joined.split("\0")


def _of_programs(joined: str) -> list[Span]:
    """Options of known programs, whose words may hold spaces here."""
    places, at = [], 0
    for word in joined.split("\0"):
        places.append((at, at + len(word)))
        at += len(word) + 1
    return [span for command in programs.commands(joined, places) for span in command]


def _word_by_word(joined: str, spans: Iterable[Span]) -> Iterator[Span]:
    """The spans without the NULs in them."""
    for begin, end in spans:
        for part in joined[begin:end].split("\0"):
            yield begin, begin + len(part)
            begin += len(part) + 1


_NAME = re.compile_anchored(r"[-+]{0,2}[A-Za-z_][A-Za-z0-9_.-]{0,120}")


def mask_record(value: T) -> T:
    """A record with every text in it masked; the same object if nothing was.

    The keys of mappings stay, and so do bytes, which are not text of a job.
    """
    return _record(value)  # type: ignore[no-any-return]


def _record(value: Any) -> Any:
    if isinstance(value, str):
        return _short(value) if len(value) <= 256 else mask(value)
    if isinstance(value, msgspec.Struct):
        changed = {}
        for name in _with_text(type(value)):
            before = getattr(value, name)
            if not isinstance(before, _NO_TEXT):
                after = _record(before)
                if after is not before:
                    changed[name] = after
        return msgspec.structs.replace(value, **changed) if changed else value
    if isinstance(value, (tuple, list)):
        items = [item if isinstance(item, _NO_TEXT) else _record(item) for item in value]
        if all(map(is_, items, value)):
            return value
        return tuple(items) if isinstance(value, tuple) else items
    if isinstance(value, dict):
        return _mapping(value)
    return value


@cache
def _with_text(kind: type[msgspec.Struct]) -> tuple[str, ...]:
    """The fields of a record that may hold text, according to their declared types."""
    return tuple(
        field.name
        for field in msgspec.structs.fields(kind)
        if not all(one in _NUMBERS for one in get_args(field.type) or (field.type,))
    )


@lru_cache(8192)
def _short(text: str) -> str:
    """The masked text, remembered: names and states recur in every report."""
    return mask(text)


def _mapping(value: dict[Any, Any]) -> dict[Any, Any]:
    changed = {}
    for key, before in value.items():
        if isinstance(before, float):
            continue
        if isinstance(before, str) and isinstance(key, str) and strength(key) >= Strength.LIKELY:
            after = MASK if mask(f"{key}={before!r}") != f"{key}={before!r}" else before
        else:
            after = _record(before)
        if after is not before:
            changed[key] = after
    return {**value, **changed} if changed else value


def _found(text: str, lower: str) -> list[Span]:
    spans = list(formats.tokens(text, lower))
    if "private key" in lower or len(text) > 120:
        spans += formats.private_keys(text)
    if "://" in text:
        spans += formats.urls(text)
    spans += formats.webhooks(text, lower)
    if "=" in text:
        spans += [
            span
            for name, span in formats.parameters(text)
            if name.lower() in _QUERY_SECRETS or strength(name) is Strength.SURE
        ]
    spans += fields(text, lower)
    spans += programs.programs(text, lower)
    return spans


def _replaced(
    text: str, spans: Iterable[Span], repeated: Iterable[str] = (), start: int = 0
) -> str:
    """``text`` from ``start`` on with the spans masked, and their contents wherever else they
    stand."""
    places = [(start, end) for start, end in spans if start < end]
    values = {
        value
        for start, end in places
        if len(value := text[start:end]) >= REPEATED and MASK not in value and "\n" not in value
    }
    values.update(repeated)
    for value in sorted(values, key=len, reverse=True)[:_MOST_REPEATED]:
        at = text.find(value)
        while at >= 0:
            if _stands_alone(text, at, value):
                places.append((at, at + len(value)))
            at = text.find(value, at + len(value))
    waiting = deque(sorted((max(begin, start), end) for begin, end in places if end > start))
    parts: list[str] = []
    position = start
    while waiting:
        begin, end = waiting.popleft()
        while waiting and waiting[0][0] <= end:
            end = max(end, waiting.popleft()[1])
        parts += [text[position:begin], MASK]
        position = end
    return "".join([*parts, text[position:]])


def _stands_alone(text: str, at: int, value: str) -> bool:
    """A secret that is a plain word is masked as a word only."""
    if not value.isalpha():
        return True
    end = at + len(value)
    return not (text[at - 1 : at].isalnum() or text[end : end + 1].isalnum())
