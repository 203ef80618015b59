"""What is known of one reader."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import msgspec

from ray_sentinel.model.identity import ProcessId

FIXTURES = Path(__file__).parents[2] / "fixtures"
PROCESS = ProcessId("h", 7)
MB = 1 << 20


class Reader(msgspec.Struct, frozen=True, kw_only=True):
    """One reader. ``read`` gets bytes; what it raises beside ``errors`` is a defect."""

    name: str
    read: Callable[[bytes], object]
    front: bytes = b""
    """What a text must begin with for the reader to look at it at all."""
    words: tuple[bytes, ...] = ()
    """Of its format."""
    errors: tuple[type[Exception], ...] = ()
    """Beside the package's own."""
    most: int = MB
    """Bytes that it is ever given at once, where its caller bounds them below a megabyte."""
    seconds: float = 3.0
    """For ``hostile_text.LARGE``: far above what it takes on a loaded machine."""
    memory: float = 60.0
    """Bytes that it may hold for each of the text, beside 1 MiB."""
    fixtures: tuple[str, ...] = ()
    """Real texts, below tests/fixtures."""
    made: Callable[[], Sequence[bytes]] | None = None
    """Real texts from elsewhere, or of a generator."""

    def samples(self) -> list[bytes]:
        """All real texts that the reader has."""
        paths = [path for pattern in self.fixtures for path in sorted(FIXTURES.glob(pattern))]
        return [path.read_bytes() for path in paths] + list(self.made() if self.made else ())


def of_text(read: Callable[[str], object]) -> Callable[[bytes], object]:
    def reading(data: bytes) -> object:
        found = read(data.decode("utf-8", "replace"))
        return list(found) if isinstance(found, Iterator) else found

    return reading


def of_lines(read: Callable[[str], object]) -> Callable[[bytes], object]:
    """For readers of one line, which a caller has cut at 6,000 characters or so."""

    def reading(data: bytes) -> object:
        for line in data.decode("utf-8", "replace").split("\n"):
            read(line[:6000])
        return None

    return reading
