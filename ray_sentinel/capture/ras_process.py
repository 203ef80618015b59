"""Parses RAS answers in a child process, for callers that must not block.

Whatever listens on the service's port may send megabytes that take minutes to parse. A small answer
is parsed here; a larger one costs a child, which ends at a deadline, has limited memory, and dies
with its parent. It is this module run as a program; its input comes on stdin and its answer goes to
stdout, both as MessagePack.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping

import msgspec

from ray_sentinel import process
from ray_sentinel.errors import InputError
from ray_sentinel.model.ras import RasFacts
from ray_sentinel.process.memory_limit import limit_address_space
from ray_sentinel.waitgraph import ras

SMALL = 128 << 10
"""Most bytes of all answers together that are read in this process, which takes some tenths of a
second."""
SECONDS = 20.0
"""Seconds that the reading process may take. It needs three to five for twenty megabytes of a real
answer."""
MEMORY = 3 << 30
"""Most bytes of address space that the reading process may have."""
_MAX_ANSWER = 64 << 20


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

    Raises InputError if the answers are not parsed by then, or need more memory than allowed.
    """
    size = sum(map(len, files.values()))
    if size <= SMALL:
        return ras.explain(files, ranks=ranks)
    rows = [(host, pid, rank) for (host, pid), rank in (ranks or {}).items()]
    what = f"the answers of RAS ({size / 1e6:.0f} MB)"
    try:
        done = process.run(
            process.python_module("ray_sentinel.capture.ras_process"),
            deadline=seconds,
            max_output=_MAX_ANSWER,
            input=msgspec.msgpack.encode(_Asked(dict(files), rows)),
        )
    except OSError as error:
        raise InputError(f"{what}: no process to read them could be started: {error}") from None
    if done.timed_out:
        raise InputError(
            f"{what} were not read to their end within {seconds:g} s: they are left out"
        )
    if done.truncated or not done.ok:
        last = done.stderr.decode("utf-8", "replace").strip().splitlines()[-1:]
        raise InputError(f"{what} cannot be read: {''.join(last) or done.explain()}")
    try:
        return msgspec.msgpack.decode(done.stdout, type=RasFacts)
    except msgspec.DecodeError as error:
        raise InputError(f"{what}: the explanation cannot be read: {error}") from None


def main() -> int:
    """Explain what comes on stdin."""
    limit_address_space(MEMORY)
    try:
        asked = msgspec.msgpack.decode(sys.stdin.buffer.read(), type=_Asked)
        ranks = {(host, pid): rank for host, pid, rank in asked.ranks}
        facts = ras.explain(asked.files, ranks=ranks)
    except MemoryError:
        sys.stderr.write("more memory is needed than it may have\n")
        return 1
    sys.stdout.buffer.write(msgspec.msgpack.encode(facts))
    return 0


if __name__ == "__main__":
    sys.exit(main())
