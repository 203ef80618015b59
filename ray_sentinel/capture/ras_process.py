"""Parses RAS answers in a process of its own, for callers that must not block.

Whatever listens on the service's port may send megabytes that take minutes to parse. A small answer
is parsed here.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping

import msgspec

from ray_sentinel.model.ras import RasFacts
from ray_sentinel.process.apart import UnreadError, answer_apart, ask_apart
from ray_sentinel.waitgraph import ras

SMALL = 128 << 10
"""Most bytes of all answers together that are read in this process, which takes some tenths of a
second."""
SECONDS = 20.0
"""Seconds that the reading process may take. It needs three to five for twenty megabytes of a real
answer."""
MEMORY = 3 << 30
"""Most bytes of address space that the reading process may take beyond its program's."""


class _Asked(msgspec.Struct):
    files: dict[str, bytes]
    ranks: list[tuple[str, int, int]]
    """The ranks: host or address, process id, and world rank of each."""


def explain_in_process(
    files: Mapping[str, bytes],
    *,
    ranks: Mapping[tuple[str, int], int] | None = None,
    seconds: float = SECONDS,
) -> RasFacts:
    """``waitgraph.ras.explain`` within ``seconds``.

    Raises UnreadError if the answers are not parsed by then, or need more memory than allowed.
    """
    size = sum(map(len, files.values()))
    if size <= SMALL:
        return ras.explain(files, ranks=ranks)
    rows = [(host, pid, rank) for (host, pid), rank in (ranks or {}).items()]
    what = f"what RAS answered ({size / 1e6:.0f} MB)"
    answer = ask_apart(
        "ray_sentinel.capture.ras_process",
        what=what,
        seconds=seconds,
        memory=MEMORY,
        input=msgspec.msgpack.encode(_Asked(dict(files), rows)),
    )
    try:
        return msgspec.msgpack.decode(answer, type=RasFacts)
    except msgspec.DecodeError as error:
        raise UnreadError(f"{what}: the explanation cannot be read: {error}") from None


def _explain(_: list[str]) -> bytes:
    asked = msgspec.msgpack.decode(sys.stdin.buffer.read(), type=_Asked)
    ranks = {(host, pid): rank for host, pid, rank in asked.ranks}
    return msgspec.msgpack.encode(ras.explain(asked.files, ranks=ranks))


if __name__ == "__main__":
    sys.exit(answer_apart(_explain))
