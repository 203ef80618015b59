"""Line shapes (text without its digits), by which repeated chatter is skipped cheaply."""

from __future__ import annotations

from ray_sentinel.evidence.logs.errors.catalogue import Catalogue, SignatureMatch
from ray_sentinel.evidence.logs.errors.signatures import CompiledSignature

MOST_SHAPES = 20_000
_PATIENCE = 40
"""Number of lines of a shape that matched nothing after which it is not looked at again."""
_KNOWN_AFTER = 12
"""Number of equal answers for a shape after which its lines are first compared with that answer's
signature."""
_DIGITS = b"0123456789"


def shape_of(raw: bytes) -> bytes:
    """The beginning of a line without its digits."""
    return raw[:400].translate(None, _DIGITS)


class KnownShapes:
    """What the catalogue has returned for each shape so far."""

    def __init__(self, catalogue: Catalogue, file_kind: str) -> None:
        self._catalogue, self._kind = catalogue, file_kind
        self._unknown: dict[bytes, int] = {}
        self._known: dict[bytes, tuple[CompiledSignature, int]] = {}

    def is_ignored(self, shape: bytes) -> bool:
        """Whether lines of this shape have matched nothing often enough."""
        return self._unknown.get(shape, 0) >= _PATIENCE

    def ignore(self, shape: bytes) -> None:
        """Record that such a line matched nothing."""
        if len(self._unknown) < MOST_SHAPES:
            self._unknown[shape] = self._unknown.get(shape, 0) + 1

    def harmless(self, shape: bytes) -> str:
        """The id of the harmless entry that matched this shape often enough, or empty."""
        known = self._known.get(shape)
        if known is None or known[1] < _KNOWN_AFTER or not known[0].signature.harmless:
            return ""
        return known[0].signature.id

    def search(self, text: str, shape: bytes) -> SignatureMatch | None:
        """The catalogue's answer; if a shape often had the same one, only that entry is tried."""
        known = self._known.get(shape)
        if known is not None and known[1] >= _KNOWN_AFTER:
            groups = known[0].search(text, text.lower())
            if groups is not None:
                return SignatureMatch(known[0].signature, groups)
        found = self._catalogue.search(text, self._kind)
        if found is None and (harmless := self._catalogue.harmless(text, self._kind)) is not None:
            found = SignatureMatch(harmless, {})
        if found is not None and len(self._known) < MOST_SHAPES:
            rule = self._catalogue.rule(found.signature.id)
            same = known is not None and known[0] is rule
            self._known[shape] = (rule, known[1] + 1 if known is not None and same else 1)
        return found
