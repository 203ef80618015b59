"""Secrets that are recognised by the name beside them, in whatever syntax: ``NAME=value``, JSON
(escaped, too), YAML, Python's reprs, headers, options of command lines, tables.

A scanner, not one expression: a name is found by its stem, the separator and the value after it are
read by rules of their own, and the scan goes on after the value. So the time is linear.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from ray_sentinel import regex as re
from ray_sentinel.masking.field import PATH, QUOTE, SecretField, is_plain, is_secret, mixes
from ray_sentinel.masking.formats import Span, looks_random
from ray_sentinel.masking.names import Strength, word_set

_STEM = re.compile(
    r"pass|pwd|token|secret|stringdata|key|cred|auth|cookie|sess|signature|webhook|hook_?ur|jwt|bearer|"
    r"apprise|"
    r"(?:pin|sig|pw|otp|pat|sid|hmac|csrf|xsrf|authority.data|certificate.data)"
    r"[\"'\\=: \]]"
)
_COLOURS = re.compile_anchored(r"(?:(?:\x1b|\\x1b)\[[0-9;]{0,20}m){0,4}")
_SEPARATOR = re.compile_anchored(
    r"[\])]{0,2}[ \t\x00]{0,40}"
    r"(:=|=[>=]|=|->|!=|:|%3[Dd]|%3[Aa]|,|[|\u2502]|>|\.\.\.\.*|\x00)"
)
_SPACES = re.compile_anchored(r"[ \t]{0,200}")
_TAG = re.compile_anchored(r"[ \t][^<>=]{1,40}=[^<>]{0,200}>")
_FOLDED = re.compile_anchored(r"[ \t]{0,4}>")
_GAP = re.compile_anchored(r"\s{1,40}")
_BLANK = re.compile(r"\s{0,200}")
_ABOUT = re.compile_anchored(
    r"[ \t]{1,4}(?:for|is|was|provided|entered|given|used|supplied|tried|\([a-z ]{1,20}\))"
    r"[^\n:=]{0,60}(?:://[^\s:]{1,80})?:[ \t]{1,4}"
)
_TYPE = re.compile_anchored(
    r"[ \t]{0,8}(?:str|bytes|string|String|Any|SecretStr|(?:Optional|Union)\[[\w., ]{1,60}\]"
    r"|str \| None)[ \t]{0,8}=[ \t]{0,8}"
)
_OPEN = re.compile_anchored(rf"([A-Za-z_][A-Za-z0-9_.]{{0,60}}\()?[bBrRuUfF]{{0,2}}({QUOTE})")
_NAMED_VALUE = re.compile_anchored(
    rf"[\s,]{{0,80}}{QUOTE}?value{QUOTE}?[ \t]{{0,8}}[:=][ \t]{{0,8}}", re.IGNORECASE
)
_PROSE = re.compile_anchored(r"[ \t]{1,8}(?:(is|was|are|of|set to|were|to|:)[ \t]{1,8})?")
"""One piece of what loggers, launchers and shells put before a name. Pieces are matched one by one,
because one expression for all of them would take exponential time."""
_ASSIGNMENT = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]{0,80}[=:]")
_COMMAND = re.compile(
    r"[ \t](?:-|python|torchrun|ray\b|srun|bash|sh\b|exec|deepspeed|accelerate|[A-Za-z_]\w{0,60}=)"
    r"|\.py\b|\.sh\b|/"
)
_PIECE = re.compile_anchored(r"[^\s\x00\"'`&,;<\\]+")
_SCHEMES = word_set(
    "bearer basic token digest negotiate apikey aws4-hmac-sha256 signature bot key ntlm"
)
_HEADERS = word_set(
    "authorization proxy-authorization cookie set-cookie set-cookie2 x-authorization"
)
_ALGORITHMS = word_set("md5 sha1 sha256 sha512 utf8 base64 bcrypt argon2 pbkdf2 ascii")
_MOST_VALUE = 1 << 20
_MOST_BRACKET = 4000


def fields(text: str, lower: str) -> Iterator[Span]:
    """The values of the names that hold secrets."""
    position = covered = 0
    while (stem := _STEM.search(lower, position)) is not None:
        field = SecretField(text, stem.start())
        field.covered = covered
        position = max(field.end, stem.start() + 1)
        if field.strength is Strength.NONE:
            continue
        for start, end in _values(field):
            position = max(position, end)
            if start < end:
                yield start, end
        covered = field.covered


def _values(field: SecretField) -> Iterator[Span]:
    text = field.text
    after = field.end + len(field.quote)
    named = _NAMED_VALUE.match(text, after)
    in_tag = field.begin and text[field.begin - 1] == "<"
    if in_tag and named is None and (tag := _TAG.match(text, after)) is not None:
        yield from _value(field, tag.end(), ">")
        return
    if named is not None:
        yield from _value(field, named.end(), ":")
        return
    separator = _SEPARATOR.match(text, _behind_colours(text, after))
    kind = separator.group(1) if separator else ""
    if separator is None or not _fits(field, kind, separator):
        yield from _without_separator(field, after)
        return
    at = _behind_colours(text, separator.end())
    if kind == ":" and (annotated := _TYPE.match(text, at)) is not None:
        at, kind = annotated.end(), "="
    if kind == ":" and (inner := _FOLDED.match(text, at)):
        at = inner.end()
    yield from _value(field, at, _KINDS.get(kind[0], kind[0]))


_KINDS = {"%": "=", "-": "=", "!": "=", "\u2502": "|"}


def _behind_colours(text: str, at: int) -> int:
    """The place after any codes at ``at`` that change a terminal's colour."""
    found = _COLOURS.match(text, at)
    return found.end() if found else at


def _fits(field: SecretField, kind: str, separator: re.Match[str]) -> bool:
    text, before = field.text, field.text[field.begin - 1] if field.begin else ""
    if kind == ",":
        opens = field.flag or _opened_by(field) in ("(", "[")
        pair = opens and field.quote not in ("", "`")
        return pair and _STRING_NEXT.match(text, separator.end()) is not None
    if kind == "\0":
        return field.flag
    if kind == ">":
        return before == "<" and not field.quote
    if kind in ("|", "\u2502"):
        return text[separator.start()] in " \t" and not field.flag and _fills_cell(field)
    if kind[0] == ".":
        return field.strength >= Strength.LIKELY
    return not (kind == ":" and text.startswith(":", separator.end()))


_STRING_NEXT = re.compile_anchored(rf"\s{{0,40}}[bBrRuUfF]{{0,2}}{QUOTE}")


def _fills_cell(field: SecretField) -> bool:
    """Whether nothing else is in its cell of a table, or before it on its line."""
    before = field.text[max(0, field.begin - 80) : field.begin].rstrip(" \t\"'`")
    return not before or before[-1] in "|\u2502\n"


def _opened_by(field: SecretField) -> str:
    """The character before the name's quote."""
    start = field.begin - len(field.quote)
    return field.text[max(0, start - 3) : max(0, start)].rstrip("bu")[-1:]


def _without_separator(field: SecretField, after: int) -> Iterator[Span]:
    """``--token X``, ``password 'X'``, ``aws configure set aws_secret_access_key X``."""
    text = field.text
    if field.flag:
        space = _GAP.match(text, after)
        if space is None or text[space.end() : space.end() + 1] in ("", "-"):
            return
        yield from _value(field, space.end(), " ")
        return
    if not field.quote and (about := _ABOUT.match(text, after)) is not None:
        end = _word_end(text, about.end())
        value = text[about.end() : end]
        sure = "pass" in field.name.lower() and mixes(value)
        if (sure or looks_random(value, 16)) and not PATH.fullmatch(value):
            yield about.end(), end
        return
    prose = _PROSE.match(text, after)
    if prose is None or (field.quote and not prose.group(1)):
        return
    at = prose.end()
    opened = _OPEN.match(text, at)
    if opened is not None and not opened.group(1):
        end = _quoted_end(text, opened.end(), opened.group(2))
        value = text[opened.end() : end]
        if (field.strength is Strength.SURE and not is_plain(value)) or looks_random(value):
            yield opened.end(), end
        return
    end = _word_end(text, at)
    value = text[at:end]
    if _speaks_of(field, value, told=bool(prose.group(1))):
        yield at, end


def _speaks_of(field: SecretField, value: str, *, told: bool) -> bool:
    """Whether a word after a name in a sentence is its value."""
    if looks_random(value, 16) and not PATH.fullmatch(value) and "=" not in value[:-2]:
        return field.strength >= (Strength.LIKELY if not told else Strength.RANDOM)
    if field.strength < Strength.LIKELY or value.lower() in _ALGORITHMS:
        return False
    mixed = any(c.isdigit() for c in value) and any(c.isalpha() for c in value)
    if "_" in field.name and (field.name.isupper() or field.strength is Strength.SURE):
        return mixed and len(value) >= 6 and not _ASSIGNMENT.match(value)
    if "pass" in field.name.lower() or "pwd" in field.name.lower():
        return mixed and len(value) >= (4 if told else 6) and not _ASSIGNMENT.match(value)
    return told and mixed and len(value) >= 8


def _value(field: SecretField, at: int, kind: str) -> Iterator[Span]:
    text = field.text
    begin = at
    blank = (_BLANK if field.quote or kind in ", " else _SPACES).match(text, at)
    at = blank.end() if blank else at
    if kind == ":" and field.first and text[at : at + 1] in "\r\n|>":
        if field.name.lower() in ("secrets", "stringdata", "string_data"):
            yield from _children(field, at)
            return
        block = _block(field, at)
        if block is not None:
            yield block
            return
    opened = _OPEN.match(text, at)
    if opened is not None and not _asks(opened.group(1)):
        yield from _quoted(field, opened, kind)
        return
    if text[at : at + 1] in ("[", "(", "{"):
        yield from _bracketed(field, at)
        return
    end = _unquoted_end(field, begin, at, kind)
    value = text[at:end]
    if is_secret(field, value, kind, quoted=False):
        yield at, end


_ASKS = re.compile(
    r"get|compile|env|load|read|input|prompt|len|type|repr\b|find|open|path", re.IGNORECASE
)


def _asks(wrapper: str | None) -> bool:
    """``os.getenv("HF_TOKEN")`` holds a name, ``SecretStr("...")`` a secret."""
    return wrapper is not None and _ASKS.search(wrapper) is not None


def _quoted(field: SecretField, opened: re.Match[str], kind: str) -> Iterator[Span]:
    text = field.text
    start, quote = opened.end(), opened.group(2)
    end = _quoted_end(text, start, quote)
    if quote in "\"'" and text.startswith(quote * 2, start):
        closing = text.find(quote * 3, start + 2)
        start, end = start + 2, closing if closing >= 0 else len(text)
    value = text[start:end]
    if field.name.lower() in ("auth", "authorization") or not value.startswith("-----BEGIN"):
        scheme, _, rest = value.partition(" ")
        if rest and scheme.lower() in _SCHEMES:
            start += len(scheme) + 1
            value = rest
    if not is_secret(field, value, kind, quoted=True):
        return
    if kind == "," and not field.flag and value.isalpha() and _opened_by(field) == "[":
        return  # a list of names
    if quote == "`" and " " in value and field.strength < Strength.SURE:
        return  # a command in a sentence
    follows = text[end + len(quote) : end + len(quote) + 1]
    if kind in "= " and quote in "\"'" and follows and (follows in "\"'\\" or follows.isalnum()):
        end = _shell_word_end(text, end + len(quote))
    yield start, end


def _shell_word_end(text: str, at: int) -> int:
    """Where a shell word ends that continues after its first quote: ``'it'\\''s mine'``."""
    limit = _line_end(text, at)
    while at < limit:
        character = text[at]
        if character == "\\" and at + 1 < limit and text[at + 1] in "\"'\\ ":
            at += 2
        elif character in "\"'":
            at = min(_quoted_end(text, at + 1, character) + 1, limit)
        elif character.isspace() or character in "\0,;)}]&|:<>\\":
            break
        else:
            at += 1
    return at


def _quoted_end(text: str, start: int, quote: str) -> int:
    """Where the value ends that ``quote`` opened: at the next of its kind with as many backslashes,
    or with its line."""
    newline = text.find("\n", start, start + _MOST_VALUE)
    limit = newline if newline >= 0 else min(len(text), start + _MOST_VALUE)
    core = quote.lstrip("\\")
    depth = len(quote) - len(core)
    at = start
    while (found := text.find(core, at, limit)) >= 0:
        slashes = 0
        while found - slashes > start and text[found - slashes - 1] == "\\":
            slashes += 1
        if depth == 0 and slashes % 2 == 0:
            doubled = core == "'" and text.startswith("''", found) and found > start
            if not doubled or text[found + 2 : found + 3] in ",)]}: \n":
                return found
            at = found + 2
            continue
        if depth and slashes <= depth:
            return found - slashes
        at = found + len(core)
    return limit


_STRING = re.compile_anchored(r"\\{0,32}[\"']")


def _bracketed(field: SecretField, at: int) -> Iterator[Span]:
    """The strings in a list, a tuple or the values of a mapping."""
    text = field.text
    pairs = {"[": "]", "(": ")", "{": "}"}
    if at < field.covered:
        return
    depth = 0
    position, limit = at, min(len(text), at + _MOST_BRACKET)
    strings: list[Span] = []
    while position < limit:
        character = text[position]
        if character in pairs:
            depth += 1
        elif character in ")]}":
            depth -= 1
            if depth <= 0:
                break
        elif character in "\"'\\" and (opened := _STRING.match(text, position)):
            end = _quoted_end(text, opened.end(), opened.group())
            strings.append((opened.end(), end))
            position = end + len(opened.group())
            continue
        position += 1
    field.covered = position
    holds = field.strength is Strength.SURE or field.name.lower() in _HOLDERS
    for start, end in strings:
        is_name = text[end : end + 40].lstrip("\\\"'").lstrip().startswith(":")
        value = text[start:end]
        if is_name or not value or (text[at] == "{" and not _is_mapping_value(text, start)):
            continue
        if looks_random(value) or (holds and not is_plain(value)):
            yield start, end


_HOLDERS = word_set("auth secrets credentials")


def _is_mapping_value(text: str, start: int) -> bool:
    return ":" in text[max(0, start - 12) : start]


_BLOCK_HEAD = re.compile_anchored(r"[|>]?[-+0-9]{0,3}[ \t]{0,8}(?:#[^\n]{0,200})?\r?\n")


def _block(field: SecretField, at: int) -> Span | None:
    """The lines of a YAML block (``password: |``), or of a value on the line below its name."""
    text = field.text
    head = _BLOCK_HEAD.match(text, at)
    if head is None:
        return None
    line = text.rfind("\n", 0, field.begin) + 1
    own = len(text[line : field.begin]) - len(text[line : field.begin].lstrip(" "))
    start, position = head.end(), head.end()
    end = start
    marked = text[at] in "|>"
    while position < len(text):
        newline = text.find("\n", position)
        stop = newline if newline >= 0 else len(text)
        row = text[position:stop]
        if row.strip() and len(row) - len(row.lstrip(" ")) <= own:
            break
        if not marked and (_ASSIGNMENT.search(row) or row.lstrip().startswith("-")):
            break
        if row.strip():
            end = stop
        position = stop + 1
        if not marked:
            break
    start += len(text[start:end]) - len(text[start:end].lstrip())
    value = text[start:end]
    sure = field.strength is Strength.SURE or (marked and field.strength is Strength.LIKELY)
    if end <= start or not (sure or looks_random(value)):
        return None
    return None if set(value) <= {"*"} else (start, end)


_CHILD = re.compile_anchored(r"([ ]{1,40})[\w.\"'-]{1,80}:[ \t]{1,8}[\"']?([^\n\"']+)")


def _children(field: SecretField, at: int) -> Iterator[Span]:
    """The values of a YAML mapping that holds secrets under any name."""
    text = field.text
    position = text.find("\n", at) + 1
    while position > 0 and (child := _CHILD.match(text, position)) is not None:
        if not is_plain(child.group(2)):
            yield child.span(2)
        position = text.find("\n", position) + 1


def _line_end(text: str, at: int) -> int:
    newline = text.find("\n", at, at + _MOST_VALUE)
    end = newline if newline >= 0 else min(len(text), at + _MOST_VALUE)
    return end - 1 if end > at and text[end - 1] == "\r" else end


def _unquoted_end(field: SecretField, begin: int, at: int, kind: str) -> int:
    text = field.text
    name = field.name.lower()
    if kind == ">":
        close = text.find("<", at, at + _MOST_VALUE)
        return close if close >= 0 else _line_end(text, at)
    if kind == "|":
        line = _line_end(text, at)
        bars = [i for bar in "|\u2502" if (i := text.find(bar, at, line)) >= 0]
        return at + len(text[at : min(bars, default=line)].rstrip())
    if name in _HEADERS and kind in ":=":
        return _header_end(field, at)
    if field.around and kind == ":" and not field.quote:
        close = text.find(field.around, at, _line_end(text, at))
        if close >= 0:
            return close - 1 if text[close - 1] == "\\" else close
        if field.around == "\0":
            return _line_end(text, at)
    if kind == ":" and field.first and at > begin:
        return _yaml_end(text, at)
    if kind == "=" and field.first and field.name.isupper() and _is_whole_line(text, at):
        return _line_end(text, at)
    end = _word_end(text, at)
    if text[at:end].lower() in _SCHEMES:
        space = _SPACES.match(text, end)
        return _word_end(text, space.end()) if space else end
    return end


def _header_end(field: SecretField, at: int) -> int:
    """Where a header's value ends: with the line, or at the quote that encloses the whole
    header."""
    text = field.text
    end = _line_end(text, at)
    before = text[max(0, text.rfind("\n", 0, field.begin) + 1, field.begin - 400) : field.begin]
    stops = [text.find(mark, at, end) for mark in ("\0", "\\r", "\\n")]
    stops += [text.find(quote, at, end) for quote in "\"'`" if quote in before]
    end = min((stop for stop in stops if stop >= 0), default=end)
    while end > at and text[end - 1] == "\\":
        end -= 1
    return end


def _yaml_end(text: str, at: int) -> int:
    end = _line_end(text, at)
    comment = text.find(" #", at, end)
    if comment >= 0:
        end = comment
    if not _ONE_WORD.fullmatch(text, at, end) and (more := _NEXT_FIELD.search(text, at, end)):
        end = more.start()
    while end > at and text[end - 1] in " \t,;":
        end -= 1
    return end


_ONE_WORD = re.compile_anchored(r"[^\s,;]+[,;]?")
_NEXT_FIELD = re.compile(r"[,;\s]\s{0,8}[\"'\\-]{0,4}[A-Za-z_][A-Za-z0-9_.-]{0,60}[\"'\\]{0,3}[=:]")


def _is_whole_line(text: str, at: int) -> bool:
    """A line of a dump of variables: its value may hold spaces."""
    line = text[at : min(_line_end(text, at), at + 400)]
    return " " in line.strip() and _COMMAND.search(line) is None and not line.startswith(("'", '"'))


_STOPS = frozenset(" \t\r\n\0,;)}]&|:<>\"'`")


def _word_end(text: str, at: int) -> int:
    """The end of a word that no quote holds together."""
    position, limit = at, min(len(text), at + _MOST_VALUE)
    while position < limit:
        piece = _PIECE.match(text, position)
        if piece is not None:
            position = min(piece.end(), limit)
            continue
        character = text[position]
        following = text[position + 1 : position + 2]
        if character.isspace() or character == "\0":
            break
        if character in "\"'`" and (not following or following in _STOPS or position == at):
            break
        if character == "\\" and (not following or following in "\"'nrt\\u"):
            break
        if character == "&" and (following == "&" or _JOINED.match(text, position)):
            break
        if character in ",;" and (
            not following or following in _STOPS or _ASSIGNMENT.match(text, position + 1)
        ):
            break
        if character == "<" and following == "/":
            break
        position += 1
    return _without_closers(text, at, position)


_JOINED = re.compile_anchored(r"&(?:amp|quot|apos|lt|gt|#[0-9]{2,4});|&[A-Za-z_][\w.-]{0,60}=")


def _without_closers(text: str, at: int, end: int) -> int:
    opens = {")": "(", "]": "[", "}": "{", ">": "<"}
    if end <= at or text[end - 1] not in opens:
        return end
    count = Counter(text[at:end])
    while end > at and (opening := opens.get(closing := text[end - 1])):
        if count[opening] >= count[closing]:
            break
        count[closing] -= 1
        end -= 1
    return end
