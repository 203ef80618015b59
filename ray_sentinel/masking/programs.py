"""Secrets that an option of a known program takes: ``mysql -pX``, ``curl -u user:X``, netrc files.

The words of the command are read as a shell, a list in Python or JSON, or ``/proc/*/cmdline`` (with
NUL between them) has them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise

from ray_sentinel import regex as re
from ray_sentinel.masking.formats import Span, looks_random
from ray_sentinel.masking.names import Strength, strength, word_set

_SEPARATE = {
    "-p": word_set(
        "sshpass docker podman nerdctl buildah skopeo helm oras crane az oc cf mongo mongosh "
        "mongodump mongorestore twine poetry jfrog xfreerdp"
    ),
    "-P": word_set("sqlcmd bcp ipmitool mosquitto_pub mosquitto_sub zip unzip ssh-keygen"),
    "-N": word_set("ssh-keygen"),
    "-a": word_set("redis-cli"),
    "-w": word_set("ldapsearch ldapmodify"),
    "-pw": word_set("plink pscp"),
    "-A": word_set("snmpwalk"),
    "-X": word_set("snmpwalk"),
    "-c": word_set("snmpwalk"),
    "--sftp-pass": word_set("rclone"),
}
"""Options whose next word is a secret, and the programs that take them."""
_GLUED = {
    "-p": word_set("mysql mysqldump mysqladmin mysqlimport mariadb mariadb-dump sshpass 7z 7za"),
    "/p:": word_set("xfreerdp"),
}
"""Options that a secret follows in the same word."""
_PAIRED = {
    "curl": ("-u", "--user", "-U", "--proxy-user"),
    "wget": ("--auth",),
    "lftp": ("-u",),
    "smbclient": ("-U",),
    "http": ("-a", "--auth"),
    "aria2c": ("--ftp-user",),
}
"""Programs, and their options that take a user and a password."""
_AFTER = {
    "login": word_set("wandb vault huggingface-cli hf neptune comet replicate"),
    "set": word_set("modal mc"),
}
"""Verbs that a secret follows, and the programs that have them."""
_NEEDS_LOGIN = word_set(
    "docker podman nerdctl buildah skopeo helm oras crane az oc cf twine poetry"
)
PROGRAMS = frozenset(_PAIRED).union(*_SEPARATE.values(), *_GLUED.values(), *_AFTER.values())
"""The programs whose arguments are known here."""
_BEFORE = frozenset(" \t\n\r/;|&(\"'`=\0,[")
_BEHIND = frozenset(" \t\"'\0")
_WORD = re.compile(
    r"\\{0,8}\"(?:[^\"\\\n]|\\[^\n])*\"|'[^'\n]*'|(?:[^\s\x00\"'`,\[\]\\]|,[^\s\x00\"'`]|\\[^\s\"'])+"
)
_MOST_COMMAND = 1 << 16
_NETRC_WORD = re.compile(r"\bpassword[ \t]{1,40}([^\s\x00\"']{1,400})", re.IGNORECASE)
_NETRC_LOGIN = re.compile(r"\b(?:login|machine)[ \t]{1,40}[^\s]{1,200}", re.IGNORECASE)
_OPENSSL = re.compile(r"\bpass(?:in|out)?:([^\s\x00\"']{1,400})")
_SQL = re.compile(
    r"\b(?:IDENTIFIED|ENCRYPTED PASSWORD)(?: BY)?[ \t]{1,8}'([^'\n]{1,400})'", re.IGNORECASE
)
_CALLS = re.compile(
    r"(?:Auth|Credentials?|\blogin|authenticate)\([ \t]{0,8}[bu]?[\"'][^\"'\n]{0,200}[\"']"
    r"[ \t]{0,8},[ \t]{0,8}[bu]?[\"']([^\"'\n]{1,400})[\"']"
)
_WANDB = re.compile(r"wandb[^\n]{0,200}(?:key|login|api)", re.IGNORECASE)
_WANDB_KEY = re.compile(r"\b[0-9a-f]{40}\b")
_INPUT_VALUE = re.compile(r"input_value=[\"']?")
_FIELD_LINE = re.compile(
    r"^[ \t]{0,8}([A-Za-z_][\w.]{0,80})[ \t]{0,4}$|for (?:field )?([\w.]{1,80})$", re.MULTILINE
)
_ECHO = re.compile(
    r"\b(?:echo|printf)[ \t]{1,8}(?:-n[ \t]{1,8}|%s[ \t]{1,8})?[\"']?([^\s|\"'$][^\s|\"']{0,400})"
    r"[\"']?[ \t]{0,8}\|[^\n]{0,200}(?:password-stdin|passwd|--stdin|sudo -S|with-token)"
)


_SIMPLE = (
    (("pass",), _OPENSSL),
    (("identified", "encrypted"), _SQL),
    (("auth(", "login(", "authenticate(", "credential(", "credentials("), _CALLS),
    (("stdin", "sudo -s", "with-token"), _ECHO),
)
"""Words of which the text must contain one in lower case, and the expression that is then searched
for."""


def programs(text: str, lower: str) -> Iterator[Span]:
    """Values of options that take secrets, of the programs that are known for it."""
    for name in PROGRAMS:
        starts = list(_starts(lower, name))
        # A command ends where the same program begins again: so the time is linear.
        for start, limit in pairwise([*starts, len(text)]):
            yield from options(text, _words_from(text, start, limit))
    yield from _others(text, lower)


def _starts(lower: str, name: str) -> Iterator[int]:
    start = lower.find(name)
    while start >= 0:
        if _is_program(lower, start, start + len(name)):
            yield start
        start = lower.find(name, start + len(name))


def _is_program(lower: str, start: int, end: int) -> bool:
    end += 4 if lower.startswith(".exe", end) else 0
    return (not start or lower[start - 1] in _BEFORE) and lower[end : end + 1] in _BEHIND


def _words_from(text: str, start: int, limit: int) -> list[Span]:
    """The words from a program's name on, to the end of its line."""
    if start and text[start - 1] in "\"'":
        start -= 1
    limit = min(limit, start + _MOST_COMMAND)
    newline = text.find("\n", start, limit)
    limit = newline if newline >= 0 else limit
    found = _WORD.finditer(text[start:limit])
    return [_bare(text, (start + word.start(), start + word.end())) for word in found]


def _others(text: str, lower: str) -> Iterator[Span]:
    if "password" in lower and ("login" in lower or "machine" in lower):
        yield from _netrc(text)
    for hints, pattern in _SIMPLE:
        if any(hint in lower for hint in hints):
            yield from (found.span(1) for found in pattern.finditer(text))
    if "wandb" in lower:
        for found in _WANDB.finditer(text):
            newline = text.find("\n", found.end())
            limit = min(newline if newline >= 0 else len(text), found.end() + 200)
            yield from (key.span() for key in _WANDB_KEY.finditer(text, found.end(), limit))
    if "input_value=" in text:
        yield from _refused_inputs(text)


def _netrc(text: str) -> Iterator[Span]:
    for match in _NETRC_WORD.finditer(text):
        window = text[max(0, match.start() - 400) : match.start()]
        if not _NETRC_LOGIN.search(window) or match.group(1)[0] == ":":
            continue
        if "machine" in window or match.group(1).lower() not in _WORDS_OF_PROSE:
            yield match.span(1)


def _refused_inputs(text: str) -> Iterator[Span]:
    """What pydantic shows of a value that it refused; the field's name is on a line above."""
    for found in _INPUT_VALUE.finditer(text):
        above = text[max(0, found.start() - 600) : found.start()]
        names = [name for pair in _FIELD_LINE.findall(above) for name in pair if name]
        if not names or strength(names[-1]) < Strength.LIKELY:
            continue
        end = text.find(", input_type=", found.end(), found.end() + 2000)
        if end < 0:
            end = min(len(text), found.end() + 200)
        yield found.end(), end - (text[end - 1] in "\"'" and end - 1 > found.end())


_WORDS_OF_PROSE = word_set(
    "is was for and or not supplied failed incorrect wrong required authentication of to the in "
    "on invalid expired from with by has at prompt file hash change reset"
)


def _bare(text: str, span: Span) -> Span:
    """A word's place without its quotes."""
    start, end = span
    word = text[start:end]
    bare = word.lstrip("\\")
    if bare[:1] in "\"'" and len(bare) > 1:
        slashes = len(word) - len(bare)
        end -= 1
        while end > start and text[end - 1] == "\\":
            end -= 1
        return start + slashes + 1, max(end, start + slashes + 1)
    while end > start and text[end - 1] in ",;)":
        end -= 1
    return start, end


def commands(text: str, words: Sequence[Span]) -> Iterator[Iterator[Span]]:
    """The secrets of each known program among the words.

    An earlier program in the same command, with the same verbs, has these options too: it is read
    only once, because a line of nothing but programs would otherwise take time quadratic in its
    length.
    """
    texts = [text[start:end] for start, end in words]
    begin = 0
    while begin < len(words):
        # Including the word that ends the command, because ``options`` ends at that word.
        end = next((at for at in range(begin, len(words)) if _ends_command(texts[at])), len(words))
        seen = set()
        for at in range(begin, end):
            name = texts[at].rsplit("/", 1)[-1].lower()
            if name not in PROGRAMS:
                continue
            near = texts[at : min(at + 6, end + 1)]
            kind = (name, "login" in near, "login" in near[:4], "set" in near[:4])
            if kind not in seen:
                seen.add(kind)
                yield options(text, words[at : end + 1])
        begin = end + 1


def options(text: str, words: Sequence[Span]) -> Iterator[Span]:
    """The secrets in one command, ``words[0]`` being its program."""
    if not words:
        return
    texts = [text[start:end] for start, end in words]
    program = texts[0].rsplit("/", 1)[-1].lower().removesuffix(".exe")
    separate = [option for option, names in _SEPARATE.items() if program in names]
    if program in _NEEDS_LOGIN and "login" not in texts[:6]:
        separate = []
    paired = _PAIRED.get(program, ())
    glued = next((option for option, names in _GLUED.items() if program in names), "")
    for index, word in enumerate(texts[1:], start=1):
        start, end = words[index]
        if _ends_command(word):
            return
        following = words[index + 1] if index + 1 < len(words) else None
        if word in separate and following and not _empty(text, following):
            yield following
        elif word in paired and following and (pair := _password(text, following)):
            yield pair
        elif glued and word.startswith(glued) and len(word) > len(glued):
            if not (glued == "-p" and word == "-p"):
                yield start + len(glued), end
        elif len(word) > 2 and word[:2] in paired and (pair := _password(text, (start + 2, end))):
            yield pair
        elif "=" in word and word.partition("=")[0] in (*paired, *separate):
            at = start + word.index("=") + 1
            yield _password(text, (at, end)) or (at, end)
    yield from _positional(text, program, texts, words)


def _positional(
    text: str, program: str, texts: Sequence[str], words: Sequence[Span]
) -> Iterator[Span]:
    for verb, names in _AFTER.items():
        if program in names and verb in texts[:4]:
            for span in words[texts.index(verb) + 1 :]:
                value = text[span[0] : span[1]]
                if looks_random(value, 8) and not value.startswith("-") and "://" not in value:
                    yield span


def _ends_command(word: str) -> bool:
    return word in ("|", "||", "&&", ";", ">", "<")


def _empty(text: str, span: Span) -> bool:
    return span[0] >= span[1] or text[span[0]] == "-"


def _password(text: str, span: Span) -> Span | None:
    """What follows ``user:``, ``user%`` or ``user,``."""
    value = text[span[0] : span[1]]
    for mark in ":%,":
        user, found, password = value.partition(mark)
        if found and password and "//" not in password[:2]:
            return span[0] + len(user) + 1, span[1]
    return None
