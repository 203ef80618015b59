"""Stores equal stacks of many ranks once: the other files only name the file that theirs are equal
to.

A file that refers to another begins like any py-spy dump of its process and then names the other
file, which lies beside it.
"""

from __future__ import annotations

from collections.abc import Mapping
from hashlib import sha256

from ray_sentinel import regex as re

_PREFIX = "pyspy_"
_HEAD = re.compile(rb"\A(?:#[^\n]*\n)*Process \d+[^\n]*\n")
_THREAD = re.compile(rb"^Thread (?:0x[0-9a-fA-F]+|\d+)", re.MULTILINE)
_SAME = re.compile(r"^Stacks: the same as in (?P<name>pyspy_[\w.-]+)\s*$", re.MULTILINE)
_LEAST = 400
"""Bytes; a file with fewer is kept as it is."""


def fold(files: Mapping[str, bytes]) -> dict[str, bytes]:
    """The files, with a py-spy dump replaced by one line where another of the files has the same
    stacks.

    Process and thread numbers do not count; functions, files, lines, names and states do. What
    several nodes have folded can be folded again: the result is that of all their files at once.
    """
    kept: dict[bytes, str] = {}
    moved: dict[str, str] = {}
    result: dict[str, bytes] = {}
    for name in sorted(files):
        data = files[name]
        head = _HEAD.match(data)
        result[name] = data
        if head is None or len(data) < _LEAST or not name.startswith(_PREFIX):
            continue
        if _SAME.search(data[head.end() :][:_LEAST].decode("utf-8", "replace")):
            continue  # its command line is long
        digest = sha256(_THREAD.sub(b"Thread", data[head.end() :])).digest()
        first = kept.setdefault(digest, name)
        if first != name:
            result[name] = _reference(head[0], first)
            moved[name] = first
    for name, data in files.items():
        head = _HEAD.match(data) if name.startswith(_PREFIX) else None
        said = (
            _SAME.search(data[head.end() :][:_LEAST].decode("utf-8", "replace")) if head else None
        )
        if head is not None and said is not None and said["name"] in moved:
            result[name] = _reference(head[0], moved[said["name"]])
    return result


def _reference(head: bytes, name: str) -> bytes:
    return head + f"\nStacks: the same as in {name}\n".encode()


def refers_to(text: str) -> str:
    """The name of the file that has the same stacks as this one, or ""."""
    match = _SAME.search(text[:4_000])
    return match["name"] if match else ""


def unfold(text: str, other: str) -> str:
    """``text`` with the stacks of the file that it names."""
    head = _HEAD.match(text.encode())
    tail = _HEAD.match(other.encode())
    if head is None or tail is None:
        return text
    return head[0].decode() + other.encode()[tail.end() :].decode("utf-8", "replace")
