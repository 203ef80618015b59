"""A name that may announce a secret, and whether the value beside it is one.

Where that value begins and ends is found by ``fields``.
"""

from __future__ import annotations

from ray_sentinel import regex as re
from ray_sentinel.masking.formats import looks_random
from ray_sentinel.masking.names import Strength, strength, word_set

_NAME = re.compile_anchored(r"[A-Za-z0-9_.-]{1,120}")
_NAME_CHARACTERS = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.-")
_OWNER = re.compile(
    r"(?:^|[^A-Za-z0-9_.-])((?:api|access|secret|private|auth|account)[ \t])$", re.IGNORECASE
)
_MOST_NAME = 120
SHORT_FLAGS = word_set("token secret pass pw pin")
"""Names that announce a secret for sure where they are an option's."""
QUOTE = r"(?:\\{0,32}(?:[\"'`]|u002[27]|x2[27])|&quot;|&\#34;|&\#39;|&apos;|%22|%27)"
_CLOSE = re.compile_anchored(QUOTE)
_LOG_PREFIX = re.compile_anchored(
    r"[ \t>|*#-]+|\([^()\n]{0,80}\)|\[[^\[\]\n]{0,80}\]:?|[0-9][0-9:.,TZ+/-]{0,40}|[EWIDF]\b"
    r"|(?:DEBUG|INFO|WARN|WARNING|ERROR|CRITICAL|FATAL|export|set|setenv|declare|env)\b:?"
)


class SecretField:
    """A name in the text, and what surrounds it."""

    __slots__ = (
        "around",
        "begin",
        "covered",
        "end",
        "first",
        "flag",
        "name",
        "quote",
        "strength",
        "text",
    )

    def __init__(self, text: str, stem: int) -> None:
        self.text = text
        begin = stem
        floor = max(0, stem - _MOST_NAME)
        while begin > floor and text[begin - 1] in _NAME_CHARACTERS:
            begin -= 1
        found = _NAME.match(text, begin)
        self.end = found.end() if found else stem + 1
        if begin and text[begin - 1] == "\\" and text[begin] in "nrtu" and begin < stem:
            begin += 5 if text[begin] == "u" and begin + 5 <= stem else 1
        if begin >= 3 and text[begin - 1] == "%":
            begin += 2 if begin + 2 <= stem else 0
        while self.end > stem + 1 and text[self.end - 1] in ".-":
            self.end -= 1
        if (owner := _OWNER.search(text, max(0, begin - 12), begin)) is not None:
            begin = owner.start(1)
        raw = text[begin : self.end]
        name = raw.lstrip("-.")
        before = text[begin - 1] if begin else " "
        self.flag = raw.startswith("-") and (before.isspace() or before in "\0\"'`([,=;|&\\")
        self.begin = begin + len(raw) - len(name)
        self.name = name.rstrip("_.-")
        quote = _CLOSE.match(text, self.end)
        self.quote = quote.group() if quote else ""
        self.strength = strength(self.name)
        if self.flag and self.name.lower() in SHORT_FLAGS:
            self.strength = Strength.SURE
        self.first = self._is_first(begin)
        self.covered = 0
        """Up to where the brackets behind earlier names have been looked through."""
        self.around = before if before in "\0\"'`" and begin else ""
        """The quote, or NUL, right before it: then a header's value may hold spaces."""

    def _is_first(self, begin: int) -> bool:
        """Whether only indentation, quotes or a logger's prefix precede it on its line."""
        line = max(self.text.rfind("\n", max(0, begin - 400), begin) + 1, begin - 400, 0)
        while begin > line and self.text[begin - 1] in "\"'":
            begin -= 1
        while line < begin:
            piece = _LOG_PREFIX.match(self.text, line, begin)
            if piece is None:
                return False
            line = piece.end()
        return True


_ANNOTATION = re.compile_anchored(r"(?:[A-Za-z_]+\.)?[A-Za-z_]+\[[\w., |\[\]]*")
_PARAMETER = re.compile(r"(?:str|bytes)(?: \| None)?[,)=\]]")
_CALL = re.compile_anchored(r"[A-Za-z_]\w*(?:\.\w+)*\(.*")
_PLAIN = re.compile_anchored(
    r"(?:|true|false|none|null|nil|undefined|nan|n/a|yes|no|on|off|\*+\.?|[x\u2022.]{3,}|-+"
    r"|required|missing|invalid|expired|incorrect|empty|unset|redacted|hidden|str|string|bytes|int"
    r"|optional|secretstr|not set|unauthori[sz]ed|denied|rejected|absent"
    r"|<[a-z]{2,9} [^>]{0,80}>|<class|\[redacted\]|\[hidden\]|<redacted>|<hidden>)[.,!:]?",
    re.IGNORECASE,
)
_PROSE_WORDS = word_set(
    "not must is the a an wrong failed authentication file for from was cannot could please ok "
    "okay set present found your you use error no"
)
_REFERENCE = re.compile_anchored(
    r"\$\{[^}]{0,80}\}?|\$[A-Z_][A-Z0-9_]*|\$\([^)]{0,80}\)?|\{\{.{0,80}|%\(?[A-Za-z_]{0,40}\)?s"
    r"|%[A-Z_]{2,40}%|\{[A-Za-z_][A-Za-z0-9_.!:\[\]]{0,60}\}"
)
_CODE = re.compile_anchored(
    r"(?:self|cls|args|config|cfg|conf|opts|options|settings|kwargs|params|hparams|os|request|env)"
    r"(?:\.[A-Za-z_]|\[).*"
    r"|(?:[A-Za-z_][\w.]{0,80}\.)?(?:get|getenv|getpass|load|read|fetch|make|create|input|prompt)"
    r"[\w.]{0,60}\(.*"
)
_NUMBER = re.compile_anchored(r"[-+]?[0-9][0-9_,.]*(?:[eE][-+]?[0-9]+)?")
_MARK = re.compile_anchored(r"<[^<>]{0,40}>|\[[A-Z0-9_ ]{2,30}\]|</?s>|<\|.*")
_LOWER = re.compile_anchored(r"[a-z]+|[A-Z][a-z]+|[A-Z]{2,12}")
PATH = re.compile_anchored(r"(?:\.{0,2}|~)?/[\w.~+-]+(?:/[\w.~+-]*)+|[\w.-]+(?:/[\w.-]+){2,}")
_DIGIT = re.compile(r"[0-9]")


def is_plain(value: str) -> bool:
    """Whether a value is a word that stands in a secret's place: ``None``, ``missing``, ``***``."""
    return _PLAIN.fullmatch(value.strip()) is not None


def is_secret(field: SecretField, value: str, kind: str, *, quoted: bool) -> bool:
    """Whether a value really is the secret that its name announces."""
    level = field.strength
    head = field.name.lower()
    if is_plain(value) or _REFERENCE.fullmatch(value):
        return False
    if not quoted and _is_code(field, value, head):
        return False
    if not quoted and kind == ":" and not field.first and field.quote == "":
        if value.lower() in _PROSE_WORDS:
            return False
        if _LOWER.fullmatch(value.rstrip(".,!")) and head in ("token", "secret", "cookie"):
            return False
    if head.endswith(("pin", "otp", "totp")):
        digits = value.strip()
        return (digits.isdigit() and 4 <= len(digits) <= 12) or looks_random(value)
    if head in ("pwd", "oldpwd") and value.startswith("/"):
        return False
    if "hook" in head and level is Strength.LIKELY:
        return "://" in value and not value.endswith("/...")
    if head.endswith(("pass", "pw")) and level is Strength.RANDOM:
        return looks_random(value) or (mixes(value) and (kind in "= ," or quoted))
    if level is Strength.RANDOM:
        return looks_random(value) and not PATH.fullmatch(value)
    if level is Strength.LIKELY:
        return _is_likely(field, value, kind)
    return not ("pass" not in head and PATH.fullmatch(value) and not looks_random(value, 20))


def _is_code(field: SecretField, value: str, head: str) -> bool:
    if (
        _CODE.match(value)
        or _PARAMETER.match(value)
        or _ANNOTATION.fullmatch(value)
        or _names_itself(value, head)
    ):
        return True
    call = _CALL.match(value)
    return call is not None and (field.strength < Strength.SURE or "." in value.partition("(")[0])


def _is_likely(field: SecretField, value: str, kind: str) -> bool:
    if _MARK.fullmatch(value) or PATH.fullmatch(value):
        return False
    if _NUMBER.fullmatch(value) or (value.count(" ") >= 2 and not _DIGIT.search(value)):
        return False
    if field.name.lower() == "secret" and (kind == "=" or field.quote or field.first):
        return True
    word = value.strip(" .,!?\u2581\u0120#")
    if len(word) < 4 or not any(c.isalnum() for c in word):
        return False
    if _LOWER.fullmatch(word):
        return field.first or field.flag or len(word) >= 12
    return len(word) >= 6 or field.flag


def mixes(value: str) -> bool:
    """Whether a value is one word of letters and digits, as passwords are."""
    return (
        len(value) >= 4
        and " " not in value
        and any(c.isdigit() for c in value)
        and any(c.isalpha() for c in value)
    )


def _names_itself(value: str, head: str) -> bool:
    """Whether the value is code that names itself: ``token=hf_token``, ``api_key=args.api_key``."""
    word = value.rstrip(",):")
    if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_.]{2,80}", word) or any(c.isdigit() for c in word):
        return False
    last = word.rsplit(".", 1)[-1]
    return ("_" in last or "." in word or last.lower() == head.rsplit(".", 1)[-1]) and strength(
        last
    ) > 0
