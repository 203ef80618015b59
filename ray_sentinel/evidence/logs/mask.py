"""Secrets in log text, masked before anything is shown or written.

Known token shapes (Hugging Face, OpenAI, GitHub, GitLab, Slack, AWS, Google, JSON Web Tokens,
private keys), ``Authorization`` headers, passwords in URLs, signatures in signed URLs, and values
of names that end in ``token``, ``secret``, ``password``, ``api_key`` and the like.
"""

from __future__ import annotations

from ray_sentinel import regex as re

MASK = "***"

_SHAPES = re.compile(
    r"\b(?:hf_[A-Za-z0-9]{16,}"
    r"|sk-(?:proj-|ant-)?[A-Za-z0-9_-]{16,}"
    r"|gh[pousr]_[A-Za-z0-9]{20,}|github_pat_[A-Za-z0-9_]{20,}|glpat-[A-Za-z0-9_-]{16,}"
    r"|xox[abeprs]-[A-Za-z0-9-]{10,}"
    r"|(?:AKIA|ASIA|AROA|AIDA)[A-Z0-9]{16}"
    r"|AIza[A-Za-z0-9_-]{30,}|ya29\.[A-Za-z0-9_-]{20,}"
    r"|nvapi-[A-Za-z0-9_-]{20,}|dckr_pat_[A-Za-z0-9_-]{20,}|pypi-[A-Za-z0-9_-]{30,}"
    r"|eyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,}(?:\.[A-Za-z0-9_-]+)?)"
)
_HEADER = re.compile(
    r"(?P<keep>\b(?:Proxy-)?Authorization\b['\"]?\s*[:=]\s*['\"]?(?:Bearer|Basic|Token|AWS4-HMAC-SHA256)?\s*"
    r"|\bBearer\s+)(?P<secret>[A-Za-z0-9._~+/=-]{6,})",
    re.IGNORECASE,
)
_URL = re.compile(
    r"(?P<keep>[a-z][a-z0-9+.-]{1,20}://[^\s/:@'\"]{0,100}:)(?P<secret>[^\s/@'\"]{1,200})@",
    re.IGNORECASE,
)
_QUERY = re.compile(
    r"(?P<keep>[?&](?:X-Amz-(?:Signature|Credential|Security-Token)|X-Goog-(?:Signature|Credential)|sig|Signature"
    r"|AWSAccessKeyId|access_token|token|key|api_key)=)(?P<secret>[^&\s'\"]{4,})",
    re.IGNORECASE,
)
_NAMED = re.compile(
    r"(?P<keep>(?:^|[^A-Za-z])(?:[A-Za-z0-9]+[_-]){0,6}(?:token|secret|password|passwd|passphrase|pwd|credentials?"
    r"|api[_-]?key|access[_-]?key(?:[_-]id)?|secret[_-]?key|private[_-]?key|auth[_-]?key|account[_-]?key)"
    r"['\"]?\s*(?:=|:|=>)\s*(?P<quote>['\"]?))(?P<secret>[^\s'\",;}\])<]{6,})",
    re.IGNORECASE,
)
_PLAIN = re.compile(
    r"(?:\d[\d._]*|true|false|none|null|\*+|required|missing|invalid|expired)\.?", re.IGNORECASE
)
_KEY_BLOCK = re.compile(
    r"-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(?:-----END [A-Z ]*PRIVATE KEY-----|\Z)", re.DOTALL
)
_HINT = re.compile(
    r"key|token|secret|passw|passp|pwd|auth|credential|bearer|://|eyJ|hf_|sk-|gh[pousr]_|glpat|xox|AKIA|ASIA|AROA|AIDA"
    r"|AIza|ya29|nvapi|dckr|pypi-|sig=",
    re.IGNORECASE,
)


def mask(text: str) -> str:
    """``text`` with every secret that is recognised replaced by ``***``.

    >>> mask("export HF_TOKEN=hf_abcdefghijklmnopqrstuv")
    'export HF_TOKEN=***'
    """
    if not _HINT.search(text):
        return text
    text = _KEY_BLOCK.sub("-----PRIVATE KEY *** -----", text)
    text = _URL.sub(rf"\g<keep>{MASK}@", text)
    text = _QUERY.sub(rf"\g<keep>{MASK}", text)
    text = _HEADER.sub(rf"\g<keep>{MASK}", text)
    text = _SHAPES.sub(MASK, text)
    return _NAMED.sub(_named, text)


def _named(match: re.Match[str]) -> str:
    if _PLAIN.fullmatch(match.group("secret")):
        return match.group()
    return match.group("keep") + MASK
