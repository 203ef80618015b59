"""A client of NCCL's RAS service: a few lines of text over TCP (``src/ras/client.cc`` of NCCL).

Whatever listens on the port is not trusted: every answer is bounded in bytes and time, and one
deadline covers the whole conversation.
"""

from __future__ import annotations

import socket
import time

from ray_sentinel.errors import InputError, UnreachableError, UsageError
from ray_sentinel.text import port_number

DEFAULT_HOST = "localhost"
DEFAULT_PORT = 28028
PROTOCOL = 2
MOST_BYTES = 32 << 20
"""Most bytes of one answer; a longer one is refused. An entry takes some 200 bytes, so 16,384 ranks
in eight communicators each make 26 MB."""
MOST_LINE = 4096
"""Most bytes of a line before the status; a longer one belongs to another protocol."""
GATHER_SECONDS = 5
"""Seconds for which the answering process waits for the others: RAS's own default."""


def address(text: str) -> tuple[str, int]:
    """Host and port of ``NCCL_RAS_ADDR``: ``host:port``, ``[IPv6]:port``, or a host alone.

    Raises UsageError if the port is invalid.
    """
    text = text.strip()
    if text.startswith("[") and "]" in text:
        host, _, rest = text[1:].partition("]")
        port = rest.lstrip(":")
    elif text.count(":") == 1:
        host, _, port = text.partition(":")
    else:
        host, port = text, ""
    number = port_number(port) if port else DEFAULT_PORT
    if number is None:
        raise UsageError(f"NCCL_RAS_ADDR={text!r}: {port!r} is no port")
    return host or DEFAULT_HOST, number


def ask(
    host: str = DEFAULT_HOST,
    port: int = DEFAULT_PORT,
    *,
    json: bool = True,
    deadline: float = GATHER_SECONDS + 3.0,
) -> bytes:
    """One answer to ``STATUS``, as JSON or else as verbose text.

    Raises UnreachableError if nobody listens or the answer does not arrive within ``deadline``
    seconds; InputError if the other end does not speak the protocol, or sends too much.
    """
    end = time.monotonic() + deadline
    place = f"{host}:{port}"
    try:
        link = socket.create_connection((host, port), timeout=max(0.1, min(2.0, deadline)))
    except (OSError, ValueError) as error:  # ValueError: a name that no host can have
        why = getattr(error, "strerror", None) or error
        raise UnreachableError(
            f"no RAS service at {place} ({why}): NCCL_RAS_ENABLE may be 0, or NCCL_RAS_ADDR "
            "another address"
        ) from None
    with link:
        try:
            return _Conversation(link, end, place).status(json)
        except TimeoutError:
            raise UnreachableError(
                f"the RAS service at {place} did not answer within {deadline:.0f} s"
            ) from None
        except OSError as error:
            raise InputError(
                f"what listens at {place} broke off the conversation: {error.strerror or error}"
            ) from None


class _Conversation:
    """One connection and what has been read of it."""

    def __init__(self, link: socket.socket, end: float, place: str) -> None:
        self._link = link
        self._end = end
        self._place = place
        self._buffer = b""

    def status(self, json: bool) -> bytes:
        """Greet, set the time-out and the format, ask."""
        greeting = self._command(f"CLIENT PROTOCOL {PROTOCOL}")
        if not greeting.upper().startswith("SERVER PROTOCOL "):
            raise InputError(f"what listens at {self._place} is no RAS service: {greeting[:80]!r}")
        left = max(1, min(GATHER_SECONDS, int(self._left()) - 1))
        self._expect_ok(f"TIMEOUT {left}")
        if json:
            self._expect_ok("SET FORMAT json")
        self._send("STATUS" if json else "VERBOSE STATUS")
        return self._rest()

    def _expect_ok(self, command: str) -> None:
        answer = self._command(command)
        if answer.upper() != "OK":
            raise InputError(f"the RAS service at {self._place} refuses {command}: {answer[:80]!r}")

    def _command(self, command: str) -> str:
        self._send(command)
        while b"\n" not in self._buffer:
            if len(self._buffer) > MOST_LINE:
                raise InputError(
                    f"what listens at {self._place} is no RAS service: a line too long"
                )
            if not self._receive():
                raise InputError(f"what listens at {self._place} closed the connection")
        line, _, self._buffer = self._buffer.partition(b"\n")
        return line.decode("utf-8", "replace").strip()

    def _send(self, command: str) -> None:
        self._link.settimeout(self._left())
        self._link.sendall(command.encode() + b"\n")

    def _rest(self) -> bytes:
        """Everything until the service closes the connection."""
        parts, size = [self._buffer], len(self._buffer)
        self._buffer = b""
        while self._receive():
            size += len(self._buffer)
            if size > MOST_BYTES:
                raise InputError(f"{self._place} says more than {MOST_BYTES >> 20} MiB: given up")
            parts.append(self._buffer)
            self._buffer = b""
        return b"".join(parts)

    def _receive(self) -> bool:
        """Read what has come; False at the end."""
        self._link.settimeout(self._left())
        got = self._link.recv(1 << 16)
        self._buffer += got
        return bool(got)

    def _left(self) -> float:
        left = self._end - time.monotonic()
        if left <= 0:
            raise TimeoutError
        return left
