"""Classifies a traceback by the catalogue: its most specific exception and that one's entry."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec

from ray_sentinel import regex as re
from ray_sentinel.evidence.logs.errors.catalogue import Catalogue, SignatureMatch
from ray_sentinel.evidence.logs.lines.levels import level
from ray_sentinel.evidence.logs.lines.lines import ScannedLine
from ray_sentinel.evidence.logs.lines.tracebacks import (
    Raised,
    Traceback,
    first_cause,
    is_wrapper,
    parse_exception,
)

_MESSAGE_LINES = 4
_NOT_REACHED = re.compile(
    r"(?:Connect|Read|Pool|Write)(?:Timeout|Error)\b|ConnectionError|RemoteProtocolError|ProxyError"
    r"|SSLError|Name or service not known|name resolution|[Tt]imed out|unreachable|No route to host"
    r"|(?:Host|Network) is down|[Cc]onnection (?:refused|reset|abort)|[Bb]roken pipe"
    r"|is not connected|MaxRetryError|ClientConnectorError"
)
_OF_NO_SERVICE = frozenset({"rendezvous", "transport-lost"})
_WAITS_FOR_OTHERS = re.compile(
    r"(?:torch/distributed/(?:run|launch|launcher/api)|accelerate/commands/(?:launch|accelerate_cli)"
    r"|deepspeed/launcher/\w+|ray/_private/(?:worker|auto_init_hook|client_mode_hook)|ray/worker"
    r"|/runpy)\.py:|/bin/(?:torchrun|accelerate|deepspeed):|-packages/ray/(?:air|tune|train)/"
)
"""The places where launchers and drivers wait for their processes, or start. An exception raised
there shows only that one of these failed, or says nothing of the program yet."""


class ExceptionClassifier:
    """Classifies chains of exceptions in a file of one kind."""

    def __init__(self, catalogue: Catalogue, file_kind: str) -> None:
        self._catalogue, self._kind = catalogue, file_kind

    def judge(
        self, block: Traceback, lines: Sequence[ScannedLine]
    ) -> tuple[Raised, SignatureMatch]:
        """The exception of the chain that says most, and its signature; ``block`` has at least
        one."""
        fallback: tuple[Raised, SignatureMatch] | None = None
        chain = tuple(first_cause(block))
        for number, raised in enumerate(chain):
            handled = chain[number + 1 :]
            found = self._at_its_place(raised, handled, self._search(raised, lines))
            if found is not None and found.signature.role in ("cause", "harmless"):
                return self._as_client_says(raised, handled, found, lines)
            if fallback is None:
                fallback = raised, found or self._by_place(raised)
        assert fallback is not None, "a block without exceptions is not judged"
        place = self._by_place(fallback[0])
        if fallback[1].signature.role == "echo" and place.signature.role == "cause":
            return fallback[0], place
        last = [r for r in block.raised if not r.wraps]
        if last and fallback[1].signature.id == "python-exception":
            return last[-1], self._by_place(last[-1])
        return fallback

    def bare(self, kind: str) -> SignatureMatch:
        """The entry for an exception's line without a traceback."""
        name = "python-wrapper" if is_wrapper(kind) else "python-exception"
        return SignatureMatch(self._catalogue.get(name), {})

    def by_module(self, kind: str, found: SignatureMatch) -> SignatureMatch:
        """``found`` for an exception's line without a traceback, or the entry of the service whose
        client defines the exception if ``found`` says only that a connection failed. Where ranks
        meet or are in a collective, its words say more than where it is defined."""
        if found.signature.kind not in _OF_NO_SERVICE:
            return found
        service = self._catalogue.search_frames((_module(kind),), connections=True)
        if service is None or service.peer_lost or service.kind == found.signature.kind:
            return found
        return SignatureMatch(service, {})

    def groups(
        self, found: SignatureMatch, chosen: Raised, lines: Sequence[ScannedLine]
    ) -> dict[str, str]:
        """The named groups of the match, also from the further lines of a message of several
        lines."""
        groups = dict(found.groups)
        rule = self._catalogue.rule(found.signature.id)
        for line in _message_after(chosen, lines):
            for key, value in (rule.search(line.text, line.text.lower()) or {}).items():
                groups.setdefault(key, value)
        return groups

    def _as_client_says(
        self,
        raised: Raised,
        handled: Sequence[Raised],
        found: SignatureMatch,
        lines: Sequence[ScannedLine],
    ) -> tuple[Raised, SignatureMatch]:
        """The exception to show and its entry: of a chain about one failed connection, the client's
        own word on it, or the last that names the address."""
        if not found.signature.connections:
            return raised, found
        for later in handled:
            own = self._search(later, lines)
            if own is not None and own.signature.kind == found.signature.kind:
                return later, own
        named = [later for later in handled if _NOT_REACHED.search(later.text)]
        return named[-1] if named else raised, found

    def _search(self, raised: Raised, lines: Sequence[ScannedLine]) -> SignatureMatch | None:
        """Search by the exception's own line, else together with the following lines of its
        message."""
        found = self._catalogue.search(raised.text, self._kind)
        if found is not None and found.signature.role in ("cause", "harmless"):
            return found
        tail = " ".join(line.text.strip() for line in _message_after(raised, lines))
        wider = self._catalogue.search(f"{raised.text} {tail}"[:2000], self._kind)
        return wider if wider is not None and wider.signature.role == "cause" else found

    def _at_its_place(
        self, raised: Raised, handled: Sequence[Raised], found: SignatureMatch | None
    ) -> SignatureMatch | None:
        """``found``, made more precise by where the exception was raised: a failed connection is
        one to the service whose client raised it, and a full or broken disk, or a store out of
        reach, has cost the checkpoint that was being written to it.

        ``handled`` are the exceptions raised while it was handled. Their frames lie below its own
        on one stack: a socket's error is raised in a library, and handled in the client.
        """
        if _not_reached(raised, found):
            below = (frame for later in reversed(handled) for frame in later.frames)
            places = (_module(raised.kind), *below, *raised.frames)
            service = self._catalogue.search_frames(places, connections=True)
            told = found.signature.kind if found is not None else ""
            # Words of a rendezvous say more than the collective in which it was made.
            together = told == "rendezvous" and service is not None and service.peer_lost
            if service is not None and service.kind != told and not together:
                found = SignatureMatch(service, {})
        if found is None or found.signature.kind != "storage":
            return found
        if self._by_place(raised).signature.kind != "checkpoint-fs-error":
            return found
        lost = msgspec.structs.replace(found.signature, kind="checkpoint-fs-error")
        return SignatureMatch(lost, found.groups)

    def _by_place(self, raised: Raised) -> SignatureMatch:
        """What its frames show about an exception that no entry covers."""
        if raised.wraps or _cut_while_waiting(raised):
            return SignatureMatch(self._catalogue.get("python-wrapper"), {})
        place = self._catalogue.search_frames(raised.frames)
        return SignatureMatch(place or self._catalogue.get("python-exception"), {})


def _not_reached(raised: Raised, found: SignatureMatch | None) -> bool:
    """Whether the exception reports a failed connection without saying to what: httpx, which the
    model hub's library uses, names no address."""
    if found is not None and found.signature.kind in _OF_NO_SERVICE:
        return True
    vague = found is None or (
        found.signature.kind == "python-exception" and found.signature.role != "cause"
    )
    return vague and _NOT_REACHED.search(raised.text) is not None


def _module(kind: str) -> str:
    """The module that defines the exception, as a path like those of frames: a line that a logger
    printed without frames shows the client by it alone."""
    return f"-packages/{kind.rpartition('.')[0].replace('.', '/')}/"


def _cut_while_waiting(raised: Raised) -> bool:
    """The log ends, or is cut, within a launcher's or a driver's frames: no rank's exception."""
    return parse_exception(raised.text) is None and bool(_WAITS_FOR_OTHERS.search(raised.frame))


def _message_after(raised: Raised, lines: Sequence[ScannedLine]) -> Iterator[ScannedLine]:
    """The lines that may belong to the exception's message: of the same process, and none that
    begins an entry of the log by itself."""
    own = lines[raised.index]
    for line in lines[raised.index + 1 : raised.index + 1 + _MESSAGE_LINES]:
        if line.origin != own.origin or level(line.text) or not line.text.strip():
            return
        yield line
