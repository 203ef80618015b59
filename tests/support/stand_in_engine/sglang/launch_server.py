"""The front end: starts the engine's processes, hands requests over. argv: folder, mode.

Reads one request a line, ``[tokens, stuck rank]``, and answers each with ``done``.
"""

from __future__ import annotations

import socket
import subprocess
import sys
from pathlib import Path


def main() -> None:
    folder, mode = Path(sys.argv[1]), sys.argv[2]
    path = str(folder / "requests")
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    server = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    server.bind(path)
    server.listen()
    python = [sys.executable, "-W", "ignore", "-m"]
    scheduler = "sglang.srt.managers.scheduler"
    for rank in range(2):
        child = subprocess.Popen([*python, scheduler, str(rank), str(port), path, mode])
        (folder / f"rank-{rank}").write_text(str(child.pid))
    child = subprocess.Popen([*python, "sglang.detokenizer"])
    (folder / "detokenizer").write_text(str(child.pid))
    engine, _ = server.accept()
    for line in sys.stdin:
        engine.send(line.encode())
        print(engine.recv(100).decode(), flush=True)


if __name__ == "__main__":
    main()
