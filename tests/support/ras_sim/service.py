"""A RAS service on a socket: NCCL's own conversation, or that of something hostile."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

Handler = Callable[[socket.socket], None]


@contextmanager
def listening(handle: Handler) -> Iterator[int]:
    """A port on loopback whose connections are handled one by one; ends with the block."""
    listener = socket.create_server(("127.0.0.1", 0))
    stop = threading.Event()

    def serve() -> None:
        while not stop.is_set():
            try:
                link, _ = listener.accept()
            except OSError:
                return
            with link:
                link.settimeout(10.0)
                try:
                    handle(link)
                except OSError:
                    pass  # the client went away, as it should from some of these

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    try:
        yield listener.getsockname()[1]
    finally:
        stop.set()
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()
        thread.join(5.0)


class RasService:
    """Speaks the protocol; ``status(json, verbose)`` makes the answer to STATUS."""

    def __init__(self, status: Callable[[bool, bool], str], *, knows_json: bool = True) -> None:
        self.status = status
        self.knows_json = knows_json
        self.commands: list[str] = []

    def __call__(self, link: socket.socket) -> None:
        json = False
        with link.makefile("rb") as lines:
            for raw in lines:
                line = raw.decode().rstrip("\r\n")
                self.commands.append(line)
                word = line.lower()
                if word.startswith("client protocol "):
                    link.sendall(b"SERVER PROTOCOL 2\n")
                elif word.startswith("timeout "):
                    link.sendall(b"OK\n")
                elif word.startswith("set format ") and self.knows_json:
                    json = word.endswith("json")
                    link.sendall(b"OK\n")
                elif word in ("status", "verbose status"):
                    link.sendall(self.status(json, word.startswith("verbose")).encode())
                    return
                else:
                    link.sendall(f"ERROR: Unknown command {line}\n".encode())
