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
TOKENS: dict[str, str] = {
    "hf_": rf"hf_{_W}{{16,}}",
    "api_org_": rf"api_org_{_W}{{20,}}",
    "sk-": rf"sk-{_D}{{16,}}",
    "sk_live_": rf"sk_live_{_W}{{10,}}",
    "sk_test_": rf"sk_test_{_W}{{10,}}",
    "rk_live_": rf"rk_live_{_W}{{10,}}",
    "rk_test_": rf"rk_test_{_W}{{10,}}",
    "pk_live_": rf"pk_live_{_W}{{10,}}",
    "whsec_": r"whsec_[A-Za-z0-9+/=]{16,}",
    "ghp_": rf"ghp_{_W}{{16,}}",
    "gho_": rf"gho_{_W}{{16,}}",
    "ghu_": rf"ghu_{_W}{{16,}}",
    "ghs_": rf"ghs_{_W}{{16,}}",
    "ghr_": rf"ghr_{_W}{{16,}}",
    "github_pat_": r"github_pat_[A-Za-z0-9_]{16,}",
    "glpat-": r"glpat-[A-Za-z0-9_.-]{16,}",
    "gldt-": rf"gldt-{_D}{{16,}}",
    "glrt-": rf"glrt-{_D}{{16,}}",
    "glptt-": rf"glptt-{_D}{{16,}}",
    "glcbt-": rf"glcbt-{_D}{{16,}}",
    "gloas-": rf"gloas-{_D}{{16,}}",
    "glsa_": r"glsa_[A-Za-z0-9_]{20,}",
    "glc_": r"glc_[A-Za-z0-9+/=]{32,}",
    "xoxb-": rf"xoxb-{_D}{{10,}}",
    "xoxp-": rf"xoxp-{_D}{{10,}}",
    "xoxa-": rf"xoxa-{_D}{{10,}}",
    "xoxr-": rf"xoxr-{_D}{{10,}}",
    "xoxs-": rf"xoxs-{_D}{{10,}}",
    "xoxo-": rf"xoxo-{_D}{{10,}}",
    "xoxc-": rf"xoxc-{_D}{{10,}}",
    "xoxd-": r"xoxd-[A-Za-z0-9%_+/=-]{10,}",
    "xoxe": r"xoxe[.-][A-Za-z0-9.-]{10,}",
    "xapp-": rf"xapp-{_D}{{10,}}",
    "AKIA": r"AKIA[A-Z0-9]{12,}",
    "ASIA": r"ASIA[A-Z0-9]{12,}",
    "ABIA": r"ABIA[A-Z0-9]{12,}",
    "ACCA": r"ACCA[A-Z0-9]{12,}",
    "AROA": r"AROA[A-Z0-9]{12,}",
    "AIDA": r"AIDA[A-Z0-9]{12,}",
    "ABSK": r"ABSK[A-Za-z0-9+/=]{40,}",
    "AIza": rf"AIza{_D}{{24,}}",
    "ya29.": r"ya29\.[A-Za-z0-9._-]{16,}",
    "GOCSPX-": rf"GOCSPX-{_D}{{16,}}",
    "1//0": rf"1//0{_D}{{24,}}",
    "LTAI": r"LTAI[A-Za-z0-9]{12,}",
    "nvapi-": rf"nvapi-{_D}{{16,}}",
    "gsk_": rf"gsk_{_W}{{20,}}",
    "xai-": rf"xai-{_W}{{20,}}",
    "pplx-": rf"pplx-{_W}{{20,}}",
    "r8_": rf"r8_{_W}{{20,}}",
    "tgp_v1_": rf"tgp_v1_{_D}{{20,}}",
    "fw_": rf"fw_{_W}{{20,}}",
    "esecret_": rf"esecret_{_W}{{16,}}",
    "aph0_": r"aph0_[A-Za-z0-9_-]{16,}",
    "wandb_v1_": r"wandb_v1_[A-Za-z0-9_]{16,}",
    "lsv2_": r"lsv2_(?:pt|sk)_[A-Za-z0-9_]{16,}",
    "dapi": r"dapi[a-f0-9]{24,}(?:-[0-9])?",
    "dop_v1_": rf"dop_v1_{_W}{{20,}}",
    "doo_v1_": rf"doo_v1_{_W}{{20,}}",
    "dor_v1_": rf"dor_v1_{_W}{{20,}}",
    "dp.": r"dp\.(?:pt|st|ct|sa|scim|audit)\.[A-Za-z0-9_.-]{20,}",
    "dckr_pat_": rf"dckr_pat_{_D}{{16,}}",
    "dckr_oat_": rf"dckr_oat_{_D}{{16,}}",
    "npm_": rf"npm_{_W}{{20,}}",
    "pypi-": rf"pypi-{_D}{{24,}}",
    "rubygems_": rf"rubygems_{_W}{{20,}}",
    "hvs.": rf"hvs\.{_D}{{16,}}",
    "hvb.": rf"hvb\.{_D}{{16,}}",
    "hvr.": rf"hvr\.{_D}{{16,}}",
    "atlasv1.": rf"{_W}{{8,20}}\.atlasv1\.{_D}{{16,}}",
    "SG.": rf"SG\.{_D}{{16,}}\.{_D}{{16,}}",
    "key-": r"key-[a-f0-9]{32}",
    "shpat_": r"shpat_[A-Fa-f0-9]{20,}",
    "shpss_": r"shpss_[A-Fa-f0-9]{20,}",
    "shpca_": r"shpca_[A-Fa-f0-9]{20,}",
    "lin_api_": rf"lin_api_{_W}{{20,}}",
    "ntn_": rf"ntn_{_W}{{30,}}",
    "secret_": r"secret_[A-Za-z0-9]{40,}",
    "PMAK-": r"PMAK-[a-f0-9-]{24,}",
    "pul-": r"pul-[a-f0-9]{30,}",
    "tskey-": rf"tskey-[a-z]{{2,12}}-{_D}{{12,}}",
    "ATATT3": r"ATATT3[A-Za-z0-9_=-]{24,}",
    "ATCTT3": r"ATCTT3[A-Za-z0-9_=-]{24,}",
    "ATBB": r"ATBB[A-Za-z0-9]{28,}",
    "AKCp": r"AKCp[A-Za-z0-9]{30,}",
    "cmVmd": r"cmVmd[A-Za-z0-9]{50,}",
    "NRAK-": r"NRAK-[A-Z0-9]{20,}",
    "NRJS-": r"NRJS-[a-f0-9]{16,}",
    "sntrys_": r"sntrys_[A-Za-z0-9+/=_]{24,}",
    "sntryu_": r"sntryu_[a-f0-9]{24,}",
    "phc_": rf"phc_{_W}{{30,}}",
    "phx_": rf"phx_{_W}{{30,}}",
    "EAAA": r"EAAA[A-Za-z0-9_-]{50,}",
    "sq0": r"sq0(?:atp|csp)-[A-Za-z0-9_-]{20,}",
    "AGE-SECRET-KEY-": r"AGE-SECRET-KEY-1[A-Z0-9]{30,}",
    "ops_eyJ": r"ops_eyJ[A-Za-z0-9+/=]{40,}",
    "Q~": r"[A-Za-z0-9_~.]{3}[0-9]Q~[A-Za-z0-9_~.-]{24,}",
    "eyJ": r"eyJ[A-Za-z0-9_-]{8,}(?:\.[A-Za-z0-9_-]{4,}){1,4}\.?",
    "v1.0-": r"v1\.0-[a-f0-9]{24}-[a-f0-9]{40,}",
    "figd_": rf"figd_{_D}{{20,}}",
    "pscale_": r"pscale_(?:tkn|pw|oauth)_[A-Za-z0-9_.=-]{20,}",
    "sbp_": r"sbp_[a-f0-9]{30,}",
    "tvly-": rf"tvly-{_D}{{20,}}",
    "pcsk_": r"pcsk_[A-Za-z0-9_]{30,}",
    "ak-": r"ak-[A-Za-z0-9]{20,}",
    "as-": r"as-[A-Za-z0-9]{20,}",
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
