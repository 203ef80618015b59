"""Secrets that are recognised by their own form, whatever surrounds them.

The token formats are those of the vendors' documents and of gitleaks' rules (config/gitleaks.toml,
https://github.com/gitleaks/gitleaks, MIT License, Copyright (c) 2019 Zachary Rice), without their
lookaround and with shorter minimum lengths, because a truncated token is still a secret. Each is
searched for only where its fixed beginning occurs in the text.
"""

from __future__ import annotations

import base64
import binascii
from bisect import bisect_left
from collections.abc import Iterator
from functools import lru_cache
from itertools import pairwise

from ray_sentinel import regex as re
from ray_sentinel.masking.names import word_set

Span = tuple[int, int]

_W = "[A-Za-z0-9]"
_D = "[A-Za-z0-9_-]"
_TOKENS = (
    (rf"{_W}{{10,}}", "sk_live_ sk_test_ rk_live_ rk_test_ pk_live_"),
    (rf"{_W}{{12,}}", "LTAI"),
    (rf"{_W}{{16,}}", "hf_ ghp_ gho_ ghu_ ghs_ ghr_ esecret_"),
    (
        rf"{_W}{{20,}}",
        "api_org_ gsk_ xai- pplx- r8_ fw_ dop_v1_ doo_v1_ dor_v1_ npm_ rubygems_ lin_api_ ak- as-",
    ),
    (rf"{_W}{{28,}}", "ATBB"),
    (rf"{_W}{{30,}}", "ntn_ AKCp phc_ phx_"),
    (rf"{_W}{{40,}}", "secret_"),
    (rf"{_W}{{50,}}", "cmVmd"),
    (rf"{_D}{{10,}}", "xoxb- xoxp- xoxa- xoxr- xoxs- xoxo- xoxc- xapp-"),
    (
        rf"{_D}{{16,}}",
        "sk- gldt- glrt- glptt- glcbt- gloas- GOCSPX- nvapi- aph0_ dckr_pat_ dckr_oat_ hvs. hvb. "
        "hvr.",
    ),
    (rf"{_D}{{20,}}", "tgp_v1_ figd_ tvly-"),
    (rf"{_D}{{24,}}", "AIza 1//0 pypi-"),
    (rf"{_D}{{50,}}", "EAAA"),
    (rf"{_D}{{16,}}\.{_D}{{16,}}", "SG."),
    (r"[A-Za-z0-9_]{16,}", "github_pat_ wandb_v1_"),
    (r"[A-Za-z0-9_]{20,}", "glsa_"),
    (r"[A-Za-z0-9_]{30,}", "pcsk_"),
    (r"[A-Za-z0-9_.-]{16,}", "glpat- ya29."),
    (r"[A-Za-z0-9_=-]{24,}", "ATATT3 ATCTT3"),
    (r"[A-Za-z0-9+/=]{16,}", "whsec_"),
    (r"[A-Za-z0-9+/=]{32,}", "glc_"),
    (r"[A-Za-z0-9+/=]{40,}", "ABSK ops_eyJ"),
    (r"[A-Za-z0-9+/=_]{24,}", "sntrys_"),
    (r"[A-Za-z0-9%_+/=-]{10,}", "xoxd-"),
    (r"[.-][A-Za-z0-9.-]{10,}", "xoxe"),
    (r"[A-Z0-9]{12,}", "AKIA ASIA ABIA ACCA AROA AIDA"),
    (r"[A-Z0-9]{20,}", "NRAK-"),
    (r"1[A-Z0-9]{30,}", "AGE-SECRET-KEY-"),
    (r"[A-Fa-f0-9]{20,}", "shpat_ shpss_ shpca_"),
    (r"[a-f0-9]{16,}", "NRJS-"),
    (r"[a-f0-9]{24,}", "sntryu_"),
    (r"[a-f0-9]{30,}", "pul- sbp_"),
    (r"[a-f0-9]{32}", "key-"),
    (r"[a-f0-9-]{24,}", "PMAK-"),
    (r"[a-f0-9]{24,}(?:-[0-9])?", "dapi"),
    (r"[a-f0-9]{24}-[a-f0-9]{40,}", "v1.0-"),
    (rf"[a-z]{{2,12}}-{_D}{{12,}}", "tskey-"),
    (r"(?:pt|sk)_[A-Za-z0-9_]{16,}", "lsv2_"),
    (r"(?:pt|st|ct|sa|scim|audit)\.[A-Za-z0-9_.-]{20,}", "dp."),
    (r"(?:atp|csp)-[A-Za-z0-9_-]{20,}", "sq0"),
    (r"(?:tkn|pw|oauth)_[A-Za-z0-9_.=-]{20,}", "pscale_"),
    (r"[A-Za-z0-9_-]{8,}(?:\.[A-Za-z0-9_-]{4,}){1,4}\.?", "eyJ"),
)
"""What follows the fixed beginning of a token, and the beginnings that it follows."""
TOKENS = {
    begin: re.escape(begin) + rest for rest, begins in _TOKENS for begin in begins.split()
} | {
    "atlasv1.": rf"{_W}{{8,20}}\.atlasv1\.{_D}{{16,}}",
    "Q~": r"[A-Za-z0-9_~.]{3}[0-9]Q~[A-Za-z0-9_~.-]{24,}",
}
"""The fixed part of a token → a regular expression for the whole token."""

_BEARER = re.compile(r"\bBearer[ \t]{1,4}([A-Za-z0-9._~+/=-]{6,})", re.IGNORECASE)
_BASIC = re.compile(r"\bBasic[ \t]{1,4}([A-Za-z0-9+/_-]{6,}={0,2})", re.IGNORECASE)
_TELEGRAM = re.compile(r"[0-9]{8,11}:AA[A-Za-z0-9_-]{28,40}")
_AUTHORITY = re.compile(r"[A-Za-z][A-Za-z0-9+.-]{0,30}:/{2}")
_URL_END = re.compile(r"[\s\"'`<>\x00]")
_AUTHORITY_END = re.compile(r"[/?#]")
_PORT = re.compile_anchored(r"[0-9]{1,5}$")
_WEBHOOKS = (
    "hooks.slack.com/",
    "hooks.slack-gov.com/",
    "discord.com/api/webhooks/",
    "discordapp.com/api/webhooks/",
    "webhook.office.com/webhookb2/",
    "outlook.office.com/webhook/",
    "outlook.office365.com/webhook/",
    "chat.googleapis.com/v1/spaces/",
    "logic.azure.com/",
    "logic.azure.com:443/",
    "powerplatform.com/",
    "powerplatform.com:443/",
    "api.telegram.org/bot",
    "api.telegram.org/file/bot",
    "/open-apis/bot/hook/",
    "/open-apis/bot/v2/hook/",
    "hooks.zapier.com/",
    "maker.ifttt.com/trigger/",
    "events.pagerduty.com/integration/",
)
"""What precedes the secret path of a chat's incoming webhook, in lower case."""
_WEBHOOK_FOLDERS = ("/hook/", "/hooks/", "/webhook/", "/webhooks/", "/webhookb2/")
"""What precedes the secret path of a webhook where the path may also be harmless: only what looks
random is secret there."""
_WEBHOOK_PATH = re.compile_anchored(r"[^\s\"'`<>\x00\\]{6,400}")
_PARAMETER = re.compile(r"[?&;#](?:amp;)?([A-Za-z0-9_.-]{1,60})=")
_PARAMETER_END = re.compile(r"[&\s\"'`<>#\x00\\]")
_BEGIN = re.compile(r"-{5}BEGIN ([A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?)-{5}")
_END = re.compile(r"-{5}END [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-{5}")
_BREAK = re.compile(r"\r?\n|(?:\\{1,8}r)?\\{1,8}n")
_ARMOUR = re.compile_anchored(r"[A-Za-z0-9+/=]{1,100}")
_HEADER_LINE = re.compile_anchored(
    r"(?:Proc-Type|DEK-Info|Version|Comment|Hash|Charset)\b", re.IGNORECASE
)
_LONG_BASE64 = re.compile(r"[A-Za-z0-9+/]{40,100}={0,2}")
_AWS_SECRET = re.compile(r"[A-Za-z0-9+/]{40,}")
_HEX = re.compile_anchored(r"[0-9a-fA-F]+")
_MOST_BLOCK = 32 << 10
_MOST_URL = 4096
_MOST_AUTHORITY = 600


def lower_case(text: str) -> str:
    """``text`` in lower case, with every position unchanged: the one letter that would become
    longer is replaced first."""
    return (text if text.isascii() else text.replace("\u0130", "I")).lower()


def tokens(text: str, lower: str) -> Iterator[Span]:
    """Tokens with a known beginning, ``Bearer`` and ``Basic`` credentials."""
    for prefix in TOKENS:
        if prefix in text:
            yield from _of_form(text, prefix)
    for match in _BEARER.finditer(text) if "bearer" in lower else ():
        value = match.group(1)
        if len(value) >= 20 or any(c.isdigit() for c in value):
            yield match.span(1)
    for match in _BASIC.finditer(text) if "basic" in lower else ():
        if _is_basic(match.group(1)):
            yield match.span(1)
    if "AKIA" in text or "ASIA" in text:
        for match in _AWS_SECRET.finditer(text):
            if match.end() - match.start() == 40 and looks_random(match.group()):
                yield match.span()
    if ":AA" in text:
        yield from (match.span() for match in _TELEGRAM.finditer(text))


def _of_form(text: str, prefix: str) -> Iterator[Span]:
    for match in _token(prefix).finditer(text):
        # A word of ours may begin like a token: ``sk-learn-contrib-package``.
        if prefix not in _NEEDS_DIGIT or looks_random(match.group(1)):
            yield match.span(1)


@lru_cache(None)
def _token(prefix: str) -> re.Pattern[str]:
    # An escape may precede it: \\nhf_...
    return re.compile(rf"(?:\\[nrt]|\b)({TOKENS[prefix]})")


_NEEDS_DIGIT = word_set("sk- ak- as- key- fw_ r8_ ntn_ xai- secret_")


def _is_basic(value: str) -> bool:
    try:
        plain = base64.b64decode(value + "=" * (-len(value) % 4), altchars=b"-_")
    except (binascii.Error, ValueError):
        return False
    return b":" in plain and all(byte >= 32 for byte in plain)


def urls(text: str) -> Iterator[Span]:
    """Passwords in URLs, and users that are tokens."""
    position = 0
    while (match := _AUTHORITY.search(text, position)) is not None:
        begin = match.end()
        position = begin
        stop = _URL_END.search(text, begin, begin + _MOST_AUTHORITY)
        end = stop.start() if stop else min(len(text), begin + _MOST_AUTHORITY)
        yield from _userinfo(text, begin, end, text[match.start() : begin - 3].lower())


def _userinfo(text: str, begin: int, end: int, scheme: str) -> Iterator[Span]:
    slash = _AUTHORITY_END.search(text, begin, end)
    authority = slash.start() if slash else end
    at = text.rfind("@", begin, authority)
    if at < 0:
        # A password with an unescaped slash in it.
        colon = text.find(":", begin, authority)
        at = text.find("@", authority, end) if slash else -1
        if colon < 0 or at < 0 or _PORT.match(text, colon + 1, authority):
            return
        at = text.rfind("@", begin, end)
    elif slash and "." not in (host := text[at + 1 : authority]) and ":" not in host:
        at = text.rfind("@", begin, end)
    colon = text.find(":", begin, at)
    if colon >= 0:
        if colon + 1 < at:
            yield colon + 1, at
        if looks_random(text[begin:colon]) and scheme.startswith("http"):
            yield begin, colon
    elif at - begin >= 8 and (scheme.startswith("http") or looks_random(text[begin:at])):
        yield begin, at


def webhooks(text: str, lower: str) -> Iterator[Span]:
    """What follows the fixed part of a webhook's address."""
    for mark in (*_WEBHOOKS, *_WEBHOOK_FOLDERS):
        at = lower.find(mark)
        while at >= 0:
            start = at + len(mark)
            path = _WEBHOOK_PATH.match(text, start)
            if path is not None and (mark in _WEBHOOKS or _has_random_part(path.group())):
                end = path.end()
                while end > start and text[end - 1] in ").,;]}":
                    end -= 1
                if not path.group().endswith("..."):
                    yield start, end
            at = lower.find(mark, start)


def _has_random_part(path: str) -> bool:
    return any(looks_random(part) for part in path.split("/"))


def parameters(text: str) -> Iterator[tuple[str, Span]]:
    """Every parameter of a query, with the place of its value."""
    for match in _PARAMETER.finditer(text):
        stop = _PARAMETER_END.search(text, match.end(), match.end() + _MOST_URL)
        end = stop.start() if stop else min(len(text), match.end() + _MOST_URL)
        if set(text[match.end() : end]) - {"."}:
            yield match.group(1), (match.end(), end)


def private_keys(text: str) -> Iterator[Span]:
    """The bodies of private keys, also of those that a tail has cut at either end."""
    begins = list(_BEGIN.finditer(text)) if "-BEGIN" in text else []
    ends = [found.start() for found in _END.finditer(text)] if "-END" in text else []
    for number, begin in enumerate(begins):
        body = begin.end()
        limit = begins[number + 1].start() if number + 1 < len(begins) else len(text)
        limit = min(limit, body + _MOST_BLOCK)
        at = bisect_left(ends, body)
        whole = at < len(ends) and ends[at] <= limit
        stop = ends[at] if whole else _cut_block(text, body, limit)
        if stop > body:
            yield body, stop
    floor = 0
    for end in ends:
        # What precedes an END whose BEGIN is missing.
        start = _block_before(text, max(floor, end - _MOST_BLOCK), end)
        if start < end:
            yield start, end
        floor = end
    yield from _lines_of_base64(text)


def _cut_block(text: str, start: int, limit: int) -> int:
    """Where a body without an end stops: before the first line that does not belong to it."""
    last = start
    position = start
    first = True
    while position < limit:
        found = _BREAK.search(text, position, limit)
        end = found.start() if found else limit
        line = text[position:end].strip(" \t\"',")
        is_body = not line or _HEADER_LINE.match(line) or _ARMOUR.fullmatch(line)
        if not is_body and not _LONG_BASE64.search(line) and not (first and "*" not in line):
            break
        if line:
            last = end
        first = False
        if found is None:
            break
        position = found.end()
    return last


def _lines_of_base64(text: str) -> Iterator[Span]:
    """Bodies with neither end present: lines of the width in which keys are written."""
    lines = []
    for match in _LONG_BASE64.finditer(text):
        line = match.group()
        if len(line) in (60, 64, 70, 72, 76) and looks_random(line) and not _HEX.fullmatch(line):
            lines.append(match.span())
    for one, two in pairwise(lines):
        if two[0] - one[1] <= 40 and not _in_certificate(text, one[0]):
            after = _BREAK.match(text, two[1])
            rest = _ARMOUR.match(text, after.end()) if after else None
            yield one[0], rest.end() if rest and rest.end() - rest.start() > 12 else two[1]


def _in_certificate(text: str, start: int) -> bool:
    begin = text.rfind("-----BEGIN ", max(0, start - _MOST_BLOCK), start)
    return begin >= 0 and text.startswith(("CERT", "PUBLIC", "TRUSTED", "X509"), begin + 11)


def _block_before(text: str, floor: int, end: int) -> int:
    parts = list(_BREAK.finditer(text, floor, end))
    start = end
    edge = end
    for cut in [*reversed(parts), None]:
        begin = cut.end() if cut else floor
        line = text[begin:edge].strip(" \t\"',")
        if line and not _ARMOUR.fullmatch(line):
            tail = _LONG_BASE64.search(line)
            if tail is None:
                break
            return begin + text[begin:edge].find(tail.group())
        if line:
            start = begin
        if cut is None:
            break
        edge = cut.start()
    return start


_SEGMENTS = re.compile(r"[A-Za-z0-9+/=~]+")
_PIECES = re.compile(r"[A-Z]?[a-z]+|[A-Z]+|[0-9]+|[+/=~]+")
_LONG_PIECES = 3.0
"""Characters per run of one case from which a text consists of words; what is random has about
1.6."""


def looks_random(value: str, least: int = 12) -> bool:
    """Whether a generator seems to have made it, rather than a person.

    >>> looks_random("x7Gh2kLq9PzV"), looks_random("model.layers.0.weight"), looks_random("4096")
    (True, False, False)
    """
    if len(value) < least or len(set(value)) < 6:
        return False
    for segment in _SEGMENTS.findall(value):
        if len(segment) < 8 or segment.isdigit() or segment.count("/") > 2:
            continue
        if len(segment) / len(_PIECES.findall(segment)) < _LONG_PIECES:
            return True
    return False
